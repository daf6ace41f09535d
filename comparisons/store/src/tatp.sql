-- TATP as stored procedures: each returns 0 when it has done its work, and NULL when it has not found what it looks for.
-- A fill factor below 100 leaves room for new versions of a row on its page.

CREATE TABLE subscriber (
    s_id bigint NOT NULL, sub_nbr bigint NOT NULL, bit_1 smallint NOT NULL, vlr_location int NOT NULL, data bytea NOT NULL
) WITH (fillfactor = 80);
CREATE TABLE access_info (s_id bigint NOT NULL, ai_type smallint NOT NULL, data bytea NOT NULL);
CREATE TABLE special_facility (
    s_id bigint NOT NULL, sf_type smallint NOT NULL, is_active boolean NOT NULL, data_a smallint NOT NULL, data bytea NOT NULL
) WITH (fillfactor = 80);
CREATE TABLE call_forwarding (
    s_id bigint NOT NULL, sf_type smallint NOT NULL, start_time smallint NOT NULL, end_time smallint NOT NULL, numberx bytea NOT NULL
) WITH (fillfactor = 80);

CREATE FUNCTION get_subscriber_data(subscriber_id bigint, kind bigint, start bigint, finish bigint, random bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE found_data bytea;
BEGIN
    SELECT data INTO found_data FROM subscriber WHERE s_id = subscriber_id;
    IF NOT FOUND THEN RETURN NULL; END IF;
    RETURN 0;
END $$;

CREATE FUNCTION get_access_data(subscriber_id bigint, kind bigint, start bigint, finish bigint, random bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE found_data bytea;
BEGIN
    SELECT data INTO found_data FROM access_info WHERE s_id = subscriber_id AND ai_type = kind;
    IF NOT FOUND THEN RETURN NULL; END IF;
    RETURN 0;
END $$;

CREATE FUNCTION get_new_destination(subscriber_id bigint, kind bigint, start bigint, finish bigint, random bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE found_number bytea;
BEGIN
    SELECT cf.numberx INTO found_number
    FROM special_facility sf JOIN call_forwarding cf ON cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type
    WHERE sf.s_id = subscriber_id AND sf.sf_type = kind AND sf.is_active AND cf.start_time <= start AND cf.end_time > finish
    LIMIT 1;
    IF NOT FOUND THEN RETURN NULL; END IF;
    RETURN 0;
END $$;

CREATE FUNCTION update_subscriber_data(subscriber_id bigint, kind bigint, start bigint, finish bigint, random bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE special_facility SET data_a = random & 255 WHERE s_id = subscriber_id AND sf_type = kind;
    IF NOT FOUND THEN RETURN NULL; END IF;
    UPDATE subscriber SET bit_1 = random & 255 WHERE s_id = subscriber_id;
    RETURN 0;
END $$;

CREATE FUNCTION update_location(subscriber_id bigint, kind bigint, start bigint, finish bigint, random bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE subscriber SET vlr_location = random & 255 WHERE sub_nbr = subscriber_id;
    IF NOT FOUND THEN RETURN NULL; END IF;
    RETURN 0;
END $$;

CREATE FUNCTION insert_call_forwarding(subscriber_id bigint, kind bigint, start bigint, finish bigint, random bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE the_id bigint;
BEGIN
    SELECT s_id INTO the_id FROM subscriber WHERE sub_nbr = subscriber_id;
    PERFORM FROM special_facility WHERE s_id = the_id AND sf_type = kind;
    IF NOT FOUND THEN RETURN NULL; END IF;
    INSERT INTO call_forwarding
    VALUES (the_id, kind, start, start + 1 + (random & 7), int8send(random) || substring(int8send(random) FROM 2))
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN RETURN NULL; END IF;
    RETURN 0;
END $$;

CREATE FUNCTION delete_call_forwarding(subscriber_id bigint, kind bigint, start bigint, finish bigint, random bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE the_id bigint;
BEGIN
    SELECT s_id INTO the_id FROM subscriber WHERE sub_nbr = subscriber_id;
    DELETE FROM call_forwarding WHERE s_id = the_id AND sf_type = kind AND start_time = start;
    IF NOT FOUND THEN RETURN NULL; END IF;
    RETURN 0;
END $$;
