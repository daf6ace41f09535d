-- SmallBank as stored procedures, with the amounts of Highwire's: each returns by how much there is more money, or NULL when an account holds too
-- little. Rows are taken in one order, savings before checking and smaller customers before greater ones, so that nobody waits in a circle.

CREATE TABLE savings (customer bigint NOT NULL, balance bigint NOT NULL) WITH (fillfactor = 80);
CREATE TABLE checking (customer bigint NOT NULL, balance bigint NOT NULL) WITH (fillfactor = 80);

CREATE FUNCTION amalgamate(one bigint, two bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE of_savings bigint; of_checking bigint;
BEGIN
    SELECT balance INTO of_savings FROM savings WHERE customer = one;
    SELECT balance INTO of_checking FROM checking WHERE customer = one;
    UPDATE savings SET balance = 0 WHERE customer = one;
    IF one < two THEN
        UPDATE checking SET balance = 0 WHERE customer = one;
        UPDATE checking SET balance = balance + of_savings + of_checking WHERE customer = two;
    ELSE
        UPDATE checking SET balance = balance + of_savings + of_checking WHERE customer = two;
        UPDATE checking SET balance = 0 WHERE customer = one;
    END IF;
    RETURN 0;
END $$;

CREATE FUNCTION balance(one bigint, two bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE total bigint;
BEGIN
    SELECT s.balance + c.balance INTO total
    FROM savings s JOIN checking c ON c.customer = s.customer WHERE s.customer = one;
    RETURN 0;
END $$;

CREATE FUNCTION deposit_checking(one bigint, two bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE checking SET balance = balance + 130 WHERE customer = one;
    RETURN 130;
END $$;

CREATE FUNCTION send_payment(one bigint, two bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE there bigint;
BEGIN
    SELECT balance INTO there FROM checking WHERE customer = one;
    IF there < 500 THEN RETURN NULL; END IF;
    IF one < two THEN
        UPDATE checking SET balance = balance - 500 WHERE customer = one;
        UPDATE checking SET balance = balance + 500 WHERE customer = two;
    ELSE
        UPDATE checking SET balance = balance + 500 WHERE customer = two;
        UPDATE checking SET balance = balance - 500 WHERE customer = one;
    END IF;
    RETURN 0;
END $$;

CREATE FUNCTION transact_savings(one bigint, two bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE savings SET balance = balance + 2020 WHERE customer = one;
    RETURN 2020;
END $$;

CREATE FUNCTION write_check(one bigint, two bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE there bigint; amount bigint;
BEGIN
    SELECT s.balance + c.balance INTO there
    FROM savings s JOIN checking c ON c.customer = s.customer WHERE s.customer = one;
    amount := CASE WHEN there < 500 THEN 600 ELSE 500 END;
    UPDATE checking SET balance = balance - amount WHERE customer = one;
    RETURN -amount;
END $$;
