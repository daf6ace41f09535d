package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func verdict(t *testing.T, history string) error {
	t.Helper()
	keys, _, err := parse(strings.NewReader(history))
	if err != nil {
		t.Fatal(err)
	}
	return check(keys, time.Minute)
}

const written = `{"key":"1/5","process":0,"call":0,"return":10,"read":0,"write":1}
`

func TestASerialHistoryPasses(t *testing.T) {
	err := verdict(t, written+`{"key":"1/5","process":1,"call":11,"return":12,"read":1,"write":null}`)
	if err != nil {
		t.Fatal(err)
	}
}

func TestAStaleReadIsRefused(t *testing.T) {
	err := verdict(t, written+`{"key":"1/5","process":1,"call":11,"return":12,"read":0,"write":null}`)
	if !errors.Is(err, errNotLinearizable) {
		t.Fatal(err)
	}
}

func TestAReadOfTheSameMomentMaySeeEither(t *testing.T) {
	for _, seen := range []string{"0", "1"} {
		err := verdict(t, written+`{"key":"1/5","process":1,"call":5,"return":12,"read":`+seen+`,"write":null}`)
		if err != nil {
			t.Fatal(seen, err)
		}
	}
}

func TestALostUpdateIsRefused(t *testing.T) {
	err := verdict(t, written+`{"key":"1/5","process":1,"call":2,"return":9,"read":0,"write":2}`)
	if !errors.Is(err, errNotLinearizable) {
		t.Fatal(err)
	}
}

func TestAWriteOfUnknownEndMayHaveHappenedOrNot(t *testing.T) {
	unknown := written + `{"key":"1/5","process":1,"call":12,"return":null,"read":1,"write":2}
`
	for _, seen := range []string{"1", "2"} {
		err := verdict(t, unknown+`{"key":"1/5","process":2,"call":20,"return":21,"read":`+seen+`,"write":null}`)
		if err != nil {
			t.Fatal(seen, err)
		}
	}
	// But not both, in this order.
	err := verdict(t, unknown+`{"key":"1/5","process":2,"call":20,"return":21,"read":2,"write":null}
{"key":"1/5","process":2,"call":22,"return":23,"read":1,"write":null}`)
	if !errors.Is(err, errNotLinearizable) {
		t.Fatal(err)
	}
}

// Histories of the simulator with a mistake planted in its nodes, which the files' names tell.
func TestHistoriesOfPlantedMistakesAreRefused(t *testing.T) {
	files, _ := filepath.Glob("testdata/planted-*.jsonl")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, file := range files {
		bytes, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := verdict(t, string(bytes)); !errors.Is(err, errNotLinearizable) {
			t.Error(file, err)
		}
	}
}

func TestLinesThatAreNoOperationsAreErrors(t *testing.T) {
	for _, line := range []string{"{", `{"process":1}`, `{"key":"1/1","call":5,"return":4}`} {
		if _, _, err := parse(strings.NewReader(line)); err == nil {
			t.Error("no error for", line)
		}
	}
}
