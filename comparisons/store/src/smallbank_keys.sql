ALTER TABLE savings ADD PRIMARY KEY (customer);
ALTER TABLE checking ADD PRIMARY KEY (customer);
