package redelivery

// Known returns how many entries the ledger knows.
func (c *Consumer) Known() int { return c.ledger.Len() }

// OperationOf returns what Observer.Failed calls something that failed.
func OperationOf(what string) string { return operationOf(what, ErrNotHeld) }
