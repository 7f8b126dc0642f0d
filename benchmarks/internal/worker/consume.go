package worker

import (
	"time"
)

// consume receives and acknowledges messages that are there already. The first tenth is not measured.
func (w *worker) consume() (Report, error) {
	if err := w.publish(w.Messages); err != nil {
		return Report{}, err
	}
	if err := w.published(); err != nil {
		return Report{}, err
	}
	c, err := w.subscribe()
	if err != nil {
		return Report{}, err
	}
	defer c.Close()
	warmUp := w.Messages / 10
	var begin time.Time
	var cpuBegin time.Duration
	for i := range w.Messages {
		if i == warmUp {
			begin, cpuBegin = time.Now(), cpu()
		}
		msg, err := w.receive(c)
		if err != nil {
			return Report{}, err
		}
		if err := c.Ack(msg); err != nil {
			return Report{}, err
		}
	}
	n := float64(w.Messages - warmUp)
	return Report{Figures: map[string]float64{
		"cpuUs": micros(cpu()-cpuBegin) / n, "perSecond": n / time.Since(begin).Seconds(),
	}}, nil
}
