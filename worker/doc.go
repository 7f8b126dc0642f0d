// Package worker runs the loop around a redelivery.Consumer: it receives messages and calls a handler for each. The
// handler's error decides whether the message is acknowledged, nacked, or published as a dead letter.
//
//	consumer, err := redelivery.Subscribe(client, opts)
//	...
//	defer consumer.Close() // after Run has returned
//	w, err := worker.New(consumer, func(ctx context.Context, msg pulsar.Message) error {
//		return charge(ctx, msg.Payload())
//	})
//	...
//	err = w.Run(ctx) // returns when ctx is done and every handler has returned
//
// # Outcomes
//
//	the handler                     the Worker                                         an attempt
//	returns nil                     acknowledges the message                           no
//	returns an error                nacks it: it comes back by the Consumer's policy   yes
//	returns Permanent(err)          publishes a dead letter, with err as the reason    no
//	returns RetryAfter(d, err)      nacks it with delay d                              yes
//	returns Snooze(d)               delivers it again after d                          no
//	returns PauseFor(d, err)        delivers it again after d, takes no messages for d no
//	panics                          logs the stack, and nacks it with a *PanicError    yes
//	returns an error too late       leaves the message to the broker                   no
//
// Too late means: after the drain timeout has ended the handler's context (see Time). Permanent makes a dead letter
// even then.
//
// Errors may be wrapped. On the last delivery by MaxDeliveries (redelivery.WithDeadLetterPolicy, or DLQ), every error
// makes a dead letter, with the error as the reason. Without a dead letter topic, or if the dead letter cannot be
// published, Permanent nacks. Use [WithClassifier] to turn errors of other packages into Permanent, RetryAfter or
// Snooze.
//
// The Worker settles a message after its handler has returned, even if the handler's context has ended. If an
// acknowledgement fails, the Worker tries it again for a minute, or until the drain ends. Then it leaves the message to
// the broker, which delivers it again when the Consumer is closed. A handler must not settle the message itself.
//
// # Order, batches, outages
//
// [WithKeyOrder] handles the messages of a key one after the other, retries included: the Worker itself tries a failed
// message again. Later messages of its key wait until it is settled, and other keys go on. With this option,
// redelivery.WithNackRetryTopic has no effect on messages with a key. [NewBatch] calls a handler with many messages. If
// the handler returns a [BatchError], they are settled one by one. [WithPauseOnFailure] notices when most messages
// fail, and then tries one message at a time until one succeeds. [WithMaxAge] makes dead letters of old messages that
// fail. These options can be combined.
//
// # Time
//
// [WithTimeout] ends a handler's context after a time, and renews the ack timeout until then. A handler cannot be
// stopped; its context only asks it to stop. A handler that does not return is reported, and counts toward
// WithConcurrency until [WithStuckLimit].
//
// When Run's context is done, the Worker drains: it takes no more messages, and running handlers go on. After
// [WithDrainTimeout] their contexts end, and five seconds later Run returns in any case. The Worker logs how many
// messages were in flight, finished, and left to the broker. Then close the Consumer, which the Worker does not do.
// Only after that does the broker redeliver the messages that were left to it.
package worker
