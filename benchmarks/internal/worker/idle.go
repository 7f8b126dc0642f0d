package worker

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// settleDown is how long a client may take to become idle.
const settleDown = 3 * time.Second

// idle measures the CPU of idle consumers: first without messages, then with messages that wait for an hour.
func (w *worker) idle() (Report, error) {
	before := heap()
	n := max(1, w.Consumers)
	for range n {
		c, err := w.subscribe()
		if err != nil {
			return Report{}, err
		}
		defer c.Close()
		go nackAll(c)
	}
	time.Sleep(settleDown)
	figures := map[string]float64{"heapBytes": heap() - before, "idlePercent": w.idleCPU()}
	if w.Messages > 0 {
		if err := w.publishAll(w.Messages); err != nil {
			return Report{}, err
		}
		time.Sleep(settleDown)
		figures["waitingPercent"] = w.idleCPU()
	}
	return Report{Figures: figures}, nil
}

func nackAll(c pulsar.Consumer) {
	for msg := range c.Chan() { // the loop ends with the process
		c.Nack(msg.Message)
	}
}
