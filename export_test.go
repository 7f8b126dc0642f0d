package redelivery

// Known returns how many entries the table knows.
func (c *Consumer) Known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.Len()
}
