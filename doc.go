// Package redelivery decides when a failed Apache Pulsar message comes back to its consumer.
//
// [Subscribe] is client.Subscribe with options. Its [Consumer] is a pulsar.Consumer that drives an unmodified consumer of
// pulsar-client-go. [Prepare] and [Wrap] do the same for code in which client.Subscribe cannot be replaced.
//
// To settle a message is to acknowledge it, or to publish it elsewhere and then acknowledge it. A message that is not settled
// comes back when its delay is over: never early, and late by at most the resolution and the broker's time. If the broker sends
// a message too early, for instance after a reconnection, the Consumer holds it back.
//
// # Negative acknowledgements
//
// Nack redelivers a message after a delay that grows with its redelivery count: [WithNackRedeliveryBackoff] (PIP-106),
// [WithNackRedeliveryDelay], [Consumer.NackWithDelay]. Package backoff has the policies. While a message waits, it stays
// unacknowledged at the broker and counts toward the broker's limit of unacknowledged messages.
//
// # Ack timeout
//
// With [WithAckTimeout] a message that is not settled in time comes back as if it had been nacked. The ack timeout can have a
// backoff of its own (PIP-130). [Consumer.InProgress] restarts the timeout of a message.
//
// # Retry topic and dead letters
//
// [Consumer.ReconsumeLaterNext], ReconsumeLaterLevel and ReconsumeLaterAfter publish a message to a retry topic and then
// acknowledge it (PIP-94). The broker delivers it from there after the delay, even if the process has restarted. A message that
// was delivered too often, or that was given up with [Consumer.DeadLetter], goes to the dead letter topic. Package reconsume
// does the publishing and can be used on its own.
//
// # Subscription types
//
// Most nacked messages wait in memory, and the broker is asked for the others; [WithRedeliveryFrom] chooses. On Shared and
// Key_Shared the broker can be asked for one entry, which is a message or a batch. On Exclusive and Failover it then sends
// everything that is unacknowledged again. In both cases the Consumer holds back what is not due and acknowledges again what
// was settled before. Redelivery counts grow on all four types.
package redelivery
