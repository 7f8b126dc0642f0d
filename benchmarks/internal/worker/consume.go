package worker

import (
	"time"
)

// consume publishes messages, subscribes, and then receives and acknowledges them. The first tenth is not measured.
func (w *worker) consume() (Report, error) {
	if err := w.publishAll(w.Messages); err != nil {
		return Report{}, err
	}
	c, err := w.subscribe()
	if err != nil {
		return Report{}, err
	}
	defer c.Close()
	warmUp := w.Messages / 10
	if err := w.acknowledge(c, warmUp); err != nil {
		return Report{}, err
	}
	begin, cpuBegin := time.Now(), cpu()
	if err := w.acknowledge(c, w.Messages-warmUp); err != nil {
		return Report{}, err
	}
	n := float64(w.Messages - warmUp)
	return Report{Figures: map[string]float64{
		"cpuUs": micros(cpu()-cpuBegin) / n, "perSecond": n / time.Since(begin).Seconds(),
	}}, nil
}
