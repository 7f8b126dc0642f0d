package redelivery

// RedeliverNow ends the delays of all messages that wait in this Consumer after a nack, a Snooze or for the time of their retry, and returns how
// many there are: they are delivered again as soon as the application receives. Call it when what made messages fail is mended. The call
// itself counts nothing: redelivery counts, and later delays of the policy, are what they would be without it. Ack timeouts go on. Messages that
// wait at the broker for their time, such as those of the retry topic, still do, and so do those that a Worker with WithKeyOrder keeps. After Close
// it returns 0.
func (c *Consumer) RedeliverNow() int {
	if c.life.ended.Err() != nil {
		return 0
	}
	return c.ledger.DueNow()
}
