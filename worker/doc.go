// Package worker is the loop around a redelivery.Consumer: it receives messages, calls a handler for each, and settles the message
// by the error that the handler returns.
//
//	consumer, err := redelivery.Subscribe(client, opts)
//	...
//	defer consumer.Close()
//	w, err := worker.New(consumer, func(ctx context.Context, msg pulsar.Message) error {
//		return charge(ctx, msg.Payload())
//	})
//	...
//	err = w.Run(ctx) // until ctx is done, and every handler has returned
//
// # Outcomes
//
//	the handler                     the Worker                                         attempts
//	returns nil                     acknowledges the message                           –
//	returns an error                nacks it: it comes back by the Consumer's policy   counts
//	returns Permanent(err)          publishes a dead letter, with err as the reason    –
//	returns RetryAfter(d, err)      nacks it with delay d                              counts
//	panics                          logs the stack; a *PanicError, an error as above   counts
//	returns an error but for        leaves the message: it is delivered again          –
//	Permanent after a drain         when the Consumer is closed
//	timeout ended its context
//
// Errors may be wrapped. On the last delivery, by MaxDeliveries of pulsar.DLQPolicy, every error makes a dead letter, with the
// error as the reason. Without a dead letter topic, or if it cannot be published, Permanent nacks. [WithClassifier] is the place to
// turn errors of other packages into these.
//
// A message is settled after its handler has returned, with a context of its own, so that the end of the handler's context does not
// keep it from being settled. An acknowledgement that fails is tried again until the drain ends; if the message comes again all the
// same, it is handled again. A handler must not settle the message itself.
//
// # Order, batches, outages
//
// [WithKeyOrder] handles the messages of a key one after the other, over retries: one that failed is tried again here, while its key
// waits and others go on. [NewBatch] calls a handler with many messages, which are settled one by one if it returns a [BatchError].
// [WithPauseOnFailure] notices when most messages fail, and has one at a time tried until one succeeds. [WithMaxAge] gives up on what
// fails and is too old. They go together.
//
// # Time
//
// [WithTimeout] ends a handler's context, and renews the ack timeout until then. A handler cannot be stopped, only asked to
// stop by its context. One that does not return still counts toward WithConcurrency and is reported.
//
// When Run's context is done, the Worker drains: it takes no more messages, and handlers go on. After [WithDrainTimeout] their
// contexts end, and five seconds later Run returns in any case. It logs how many were at work, finished, and left.
package worker
