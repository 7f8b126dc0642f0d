package worker

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// The methods here tell the observers of the Consumer what the Worker does.

func (w *Worker) event(msg pulsar.Message) redelivery.Event {
	return redelivery.Event{Consumer: w.consumer, Topic: msg.Topic(), Subscription: w.consumer.Subscription(), ID: msg.ID(), Message: msg}
}

// tellHandling tells that the handler is called.
func (w *Worker) tellHandling(tasks []task) {
	if tell := w.consumer.Observer().Handling; tell != nil {
		for _, t := range tasks {
			tell(redelivery.Handling{Event: w.event(t.counted())})
		}
	}
}

// tellHandled tells that the handler has returned.
func (w *Worker) tellHandled(tasks []task, outcomes []outcome, took time.Duration) {
	tell := w.consumer.Observer().Handled
	if tell == nil {
		return
	}
	for i, t := range tasks {
		outcome := redelivery.Nacked
		switch outcomes[i].verb {
		case ack:
			outcome = redelivery.Acked
		case dead:
			outcome = redelivery.DeadLettered
		default: // it is to be tried again
		}
		tell(redelivery.Handled{Event: w.event(t.counted()), Outcome: outcome, Duration: took, Err: outcomes[i].err})
	}
}

// tellPaused tells that the Worker takes no more messages, or does again.
func (w *Worker) tellPaused(paused bool, why redelivery.Pause) {
	if tell := w.consumer.Observer().Paused; tell != nil {
		tell(redelivery.Paused{Consumer: w.consumer, Subscription: w.consumer.Subscription(), Paused: paused, Why: why})
	}
}
