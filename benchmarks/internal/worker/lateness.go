package worker

import (
	"strconv"
	"time"
)

// lateness lets every message fail a number of times, by a nack or by an ack timeout, and measures how late each
// redelivery comes. The delay of a redelivery begins with the nack. With an ack timeout it begins when the message is
// received.
func (w *worker) lateness() (Report, error) {
	c, err := w.subscribe()
	if err != nil {
		return Report{}, err
	}
	defer c.Close()
	if err := w.publish(w.Messages); err != nil {
		return Report{}, err
	}
	report := Report{Figures: map[string]float64{}}
	deliveries := make([]int, w.Messages)
	since := make([]time.Time, w.Messages)
	begin := cpu()
	for open := w.Messages; open > 0; {
		msg, err := w.receive(c)
		now := time.Now()
		if err != nil {
			return Report{}, err
		}
		i, err := strconv.Atoi(string(msg.Payload()))
		if err != nil {
			return Report{}, err
		}
		n := deliveries[i]
		deliveries[i]++
		if n > w.failuresOf(i) {
			report.Figures["surplus"]++ // delivered again although it was acknowledged
			continue
		}
		if n > 0 {
			late := now.Sub(since[i]) - w.planned(n-1)
			report.Samples = append(report.Samples, milliseconds(late))
		}
		time.Sleep(ms(w.HandleMs))
		if n == w.failuresOf(i) {
			if err := c.Ack(msg); err != nil {
				return Report{}, err
			}
			open--
			continue
		}
		since[i] = time.Now()
		if w.AckTimeoutMs > 0 {
			since[i] = now
		} else {
			c.Nack(msg)
		}
	}
	report.Figures["cpuSeconds"] = (cpu() - begin).Seconds()
	return report, nil
}

// failuresOf returns how often message i fails.
func (w *worker) failuresOf(i int) int {
	switch {
	case w.FailsEach > 0 && i%w.FailsEach != 0:
		return 0
	case w.Mixed:
		return 1 + i%w.Redeliveries
	default:
		return w.Redeliveries
	}
}

// planned returns the delay between a delivery with that redelivery count and the next delivery.
func (w *worker) planned(redeliveryCount int) time.Duration {
	d := ms(w.AckTimeoutMs)
	if w.MinMs > 0 {
		d += w.exponential(uint32(redeliveryCount))
	}
	return d
}
