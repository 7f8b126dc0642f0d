package worker

import (
	"fmt"
	"runtime"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// waiting nacks all messages. It measures the memory and the CPU of the process while they wait and, with DueInMs, the
// time and the CPU of their redelivery.
func (w *worker) waiting() (Report, error) {
	w.due = time.Now().Add(time.Hour) // for clients that ask the policy while they subscribe
	c, err := w.subscribe()
	if err != nil {
		return Report{}, err
	}
	defer c.Close()
	const warmUp = 2000
	if err := w.consumeSome(c, warmUp); err != nil {
		return Report{}, err
	}
	ids := make([]pulsar.MessageID, 0, w.Messages)
	before := heap()
	cpuBefore := cpu()
	if err := w.publish(w.Messages); err != nil {
		return Report{}, err
	}
	nacking := time.Duration(0)
	for i := range w.Messages {
		msg, err := w.receive(c)
		if err != nil {
			return Report{}, fmt.Errorf("message %d: %w", i, err)
		}
		ids = append(ids, msg.ID())
		begin := time.Now()
		if i == 0 {
			w.due = begin.Add(ms(w.DueInMs))
		}
		c.Nack(msg)
		nacking += time.Since(begin)
	}
	n := float64(w.Messages)
	figures := map[string]float64{
		"nackNs": float64(nacking.Nanoseconds()) / n, "nackCPUus": micros(cpu()-cpuBefore) / n,
	}
	withIDs := heap()
	clear(ids)
	withoutIDs := heap()
	runtime.KeepAlive(ids) // so that all three figures of the heap include the slice
	figures["bytes"] = (withoutIDs - before) / n
	figures["idBytes"] = (withIDs - withoutIDs) / n // 0 if the client itself holds the ids
	figures["idlePercent"] = w.idleCPU()
	if w.DueInMs > 0 {
		if err := w.handOver(c, figures); err != nil {
			return Report{}, err
		}
	}
	return Report{Figures: figures}, nil
}

// handOver receives and acknowledges all messages when they are due.
func (w *worker) handOver(c pulsar.Consumer, figures map[string]float64) error {
	time.Sleep(time.Until(w.due.Add(-time.Second)))
	early, begin := 0, cpu()
	seen := map[string]bool{}
	for len(seen) < w.Messages {
		msg, err := w.receive(c)
		if err != nil {
			return fmt.Errorf("handed over %d: %w", len(seen), err)
		}
		if time.Now().Before(w.due) {
			early++
		}
		seen[string(msg.Payload())] = true
		if err := c.Ack(msg); err != nil {
			return err
		}
	}
	figures["handOverMs"] = milliseconds(time.Since(w.due))
	figures["handOverCPUus"] = micros(cpu()-begin) / float64(w.Messages)
	figures["early"] = float64(early)
	return nil
}

// consumeSome consumes n messages, so that buffers have grown before the measurement.
func (w *worker) consumeSome(c pulsar.Consumer, n int) error {
	if err := w.publishAll(n); err != nil {
		return err
	}
	if err := w.acknowledge(c, n); err != nil {
		return err
	}
	time.Sleep(time.Second) // until the client has sent the last group of acknowledgements
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
