package redelivery

// Known returns how many entries the ledger knows.
func (c *Consumer) Known() int { return c.ledger.Len() }
