// Package redelivery decides when an Apache Pulsar message comes back to a consumer that failed on it.
//
// [Subscribe] is client.Subscribe with options, and its [Consumer] is a pulsar.Consumer: it drives an unmodified one of
// pulsar-client-go and comes between it and the application. [Prepare] and [Wrap] do the same where client.Subscribe is in
// code that cannot be changed. To settle a message is to acknowledge it, or to publish it elsewhere and then acknowledge it;
// what the application does not settle comes back when its delay is over: never early, and late by at most the resolution
// and the broker's time. What the broker sends before its time, after a reconnection for instance, is held back until then.
//
// # Negative acknowledgements
//
// Nack has a message redelivered after a delay that grows with its redelivery count: [WithNackRedeliveryBackoff] (PIP-106),
// [WithNackRedeliveryDelay], [Consumer.NackWithDelay]. Package backoff has the policies. Until the delay is over the broker is
// asked for nothing; the message stays unacknowledged there, and counts towards its limit of these.
//
// # Ack timeout
//
// With [WithAckTimeout] a message that is not settled in time comes back as if it had been nacked, after a backoff of its own
// if there is one (PIP-130). [Consumer.InProgress] gives more time.
//
// # Retry topic and dead letters
//
// [Consumer.ReconsumeLaterNext], ReconsumeLaterLevel and ReconsumeLaterAfter publish a message to a retry topic, from which
// the broker delivers it again after a delay, and then acknowledge it (PIP-94). Such a delay outlives the process. What was
// delivered too often, or is given up by [Consumer.DeadLetter], goes to the dead letter topic. Package reconsume does the
// publishing; it may be used by itself.
//
// # Subscription types
//
// On Shared and Key_Shared the broker is asked for single entries: a message, or a batch, of which those that are not due are
// held back or acknowledged again. On Exclusive and Failover a request makes the broker send everything that is
// unacknowledged, of which the same becomes. Counts grow on all four. Most nacked messages wait in memory, and the broker is
// asked for the others: [WithRedeliveryFrom].
package redelivery
