package worker

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// batch nacks every message once, acknowledges it when it comes back, and measures CPU, requests and bytes.
func (w *worker) batch() (Report, error) {
	if err := w.publishAll(w.Messages); err != nil {
		return Report{}, err
	}
	c, err := w.subscribe()
	if err != nil {
		return Report{}, err
	}
	defer c.Close()
	begin, cpuBegin, before := time.Now(), cpu(), w.counters()
	seen := make([]int, w.Messages)
	for open := w.Messages; open > 0; {
		msg, err := w.receive(c)
		if err != nil {
			return Report{}, err
		}
		i, err := strconv.Atoi(string(msg.Payload()))
		if err != nil {
			return Report{}, err
		}
		seen[i]++
		if seen[i] == 1 {
			c.Nack(msg)
			continue
		}
		if err := c.Ack(msg); err != nil {
			return Report{}, err
		}
		if seen[i] == 2 {
			open--
		}
	}
	n := float64(w.Messages)
	figures := map[string]float64{"cpuUs": micros(cpu()-cpuBegin) / n, "perSecond": n / time.Since(begin).Seconds()}
	for name, count := range w.counters() {
		figures[name] = (count - before[name]) / n
	}
	return Report{Figures: figures}, nil
}

// counters returns the deliveries, bytes and requests so far. Requests are of all kinds: redelivery, acknowledgements,
// flow.
func (w *worker) counters() map[string]float64 {
	counts := map[string]float64{}
	families, _ := w.metrics.Gather()
	for _, family := range families {
		name, ok := map[string]string{
			"pulsar_client_rpc_count": "requests", "pulsar_client_messages_received": "deliveries",
		}[family.GetName()]
		for _, m := range family.GetMetric() {
			if ok {
				counts[name] += m.GetCounter().GetValue()
			}
		}
	}
	data, _ := os.ReadFile("/proc/self/io") // Linux only
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && (name == "rchar" || name == "wchar") {
			counts[map[string]string{"rchar": "bytesIn", "wchar": "bytesOut"}[name]] = n
		}
	}
	return counts
}
