// Package redelivery decides when a failed Apache Pulsar message comes back to its consumer.
//
// [Subscribe] is client.Subscribe with options. Its [Consumer] is a pulsar.Consumer that drives an unmodified consumer
// of pulsar-client-go. [SubscribeWith] drives a consumer that other code subscribes, and [Wrap] drives an existing
// consumer.
//
// To settle a message means to acknowledge it, or to publish it to another topic and then acknowledge it. A message
// that is nacked or times out comes back when its delay is over: never early. A message that waits in memory is late
// only by scheduling; one that comes from the broker is late by at most the resolution ([WithRedeliveryResolution])
// plus the time that the broker takes. If the broker sends a message too early, for instance after a reconnection, the
// Consumer holds it back.
//
// # Negative acknowledgements
//
// Nack redelivers a message after a delay that grows with its redelivery count: [WithNackRedeliveryBackoff] (PIP-106),
// [WithNackRedeliveryDelay], [Consumer.NackWithDelay]. Package backoff has the policies. While a message waits, it
// stays unacknowledged at the broker and counts toward the broker's limit of unacknowledged messages.
//
// # Ack timeout
//
// With [WithAckTimeout] a message comes back if the application does not settle it in time. The timeout can grow with
// the redelivery count: [WithAckTimeoutRedeliveryBackoff] (PIP-130). [Consumer.InProgress] restarts the timeout of a
// message.
//
// # Retry topic and dead letters
//
// [Consumer.ReconsumeLaterNext], ReconsumeLaterLevel and ReconsumeLaterAfter publish a message to a retry topic and
// then acknowledge it (PIP-94). The broker delivers it from there after the delay, even if the process has restarted. A
// message that was delivered too often ([WithDeadLetterPolicy], or DLQ of pulsar.ConsumerOptions), or that the
// application gives up with [Consumer.DeadLetter], goes to the dead letter topic. Package reconsume does the publishing
// and can be used on its own.
//
// # Subscription types
//
// Most nacked messages wait in the Consumer's memory. The Consumer requests the others from the broker when they are
// due; [WithRedeliveryFrom] sets which. On Shared and Key_Shared a request is for one entry: a message or a batch. On
// Exclusive and Failover the broker answers each request with all unacknowledged messages. In both cases the Consumer
// holds back messages that are not due, and acknowledges again those that were settled before. Redelivery counts grow
// on all four types.
package redelivery
