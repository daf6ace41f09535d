// Is the history of every single key linearizable? Porcupine answers, without any code of Highwire's.
//
// Each file has a line of JSON for each transaction and key, as `highwire store check --history` writes it. A transaction is one
// operation on each of its keys: it reads, writes, or does both at one moment.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// One transaction's part in the history of one key. Values are numbers; 0 is the key before its first write.
type operation struct {
	Key     string `json:"key"`
	Process int    `json:"process"`
	Call    int64  `json:"call"`
	// Its end is unknown, and whether it happened.
	Return *int64 `json:"return"`
	// The value that it read. Without one, it wrote blindly.
	Read *int `json:"read"`
	// The value that it wrote. Without one, it only read.
	Write *int `json:"write"`
}

// A register with reads, writes, and writes that rest on a read.
var register = porcupine.Model{
	Init: func() interface{} { return 0 },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		operation := input.(operation)
		if operation.Read != nil && *operation.Read != state.(int) {
			// A transaction of unknown end may not have happened; then it stands anywhere and does nothing.
			return operation.Return == nil, state
		}
		if operation.Write != nil {
			return true, *operation.Write
		}
		return true, state
	},
	DescribeOperation: func(input, _ interface{}) string {
		text, _ := json.Marshal(input)
		return string(text)
	},
}

// Reads operations by key. An end before its beginning, or a line that is no operation, is an error.
func parse(input io.Reader) (map[string][]porcupine.Operation, int, error) {
	keys := make(map[string][]porcupine.Operation)
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 1<<20)
	count := 0
	for lines.Scan() {
		count++
		var one operation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, count, fmt.Errorf("line %d: %w", count, err)
		}
		end := int64(math.MaxInt64)
		if one.Return != nil {
			end = *one.Return
		}
		if one.Key == "" || end < one.Call {
			return nil, count, fmt.Errorf("line %d: no key, or an end before the beginning", count)
		}
		keys[one.Key] = append(keys[one.Key], porcupine.Operation{ClientId: one.Process, Input: one, Call: one.Call, Return: end})
	}
	return keys, count, lines.Err()
}

var errNotLinearizable = errors.New("not linearizable")

// Checks every key by itself, in order, and stops at the first whose history is not linearizable.
func check(keys map[string][]porcupine.Operation, patience time.Duration) error {
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		switch porcupine.CheckOperationsTimeout(register, keys[name], patience) {
		case porcupine.Illegal:
			return fmt.Errorf("key %s, %d operations: %w", name, len(keys[name]), errNotLinearizable)
		case porcupine.Unknown:
			return fmt.Errorf("key %s, %d operations: no verdict in %v", name, len(keys[name]), patience)
		}
	}
	return nil
}

func checkFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	keys, count, err := parse(file)
	if err == nil && count == 0 {
		err = errors.New("the history is empty")
	}
	if err == nil {
		err = check(keys, 5*time.Minute)
	}
	if err == nil {
		fmt.Printf("%s: %d operations on %d keys: each key is linearizable\n", path, count, len(keys))
	}
	return err
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "which files? (highwire store check --seed 7 --history FILE --form single-keys)")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		if err := checkFile(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
	}
}
