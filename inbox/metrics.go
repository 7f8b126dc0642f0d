package inbox

import "github.com/prometheus/client_golang/prometheus"

// The counters of Stats as Prometheus metrics.
var descriptions = []struct {
	*prometheus.Desc
	of func(Stats) uint64
}{
	{describe("transactions_total", "Transactions that were committed."),
		func(s Stats) uint64 { return s.Transactions }},
	{describe("receipts_total", "Messages whose effects were committed."), func(s Stats) uint64 { return s.Receipts }},
	{describe("duplicates_total", "Messages whose effects had been committed before."),
		func(s Stats) uint64 { return s.Duplicates }},
	{describe("retries_total",
		"Transactions that began again after a deadlock, a serialization failure or a busy database."),
		func(s Stats) uint64 { return s.Retries }},
	{describe("pruned_total", "Receipts that were deleted."), func(s Stats) uint64 { return s.Pruned }},
	{describe("prune_errors_total", "Failed attempts of handlers to delete old receipts."),
		func(s Stats) uint64 { return s.PruneErrors }},
}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("redelivery_inbox_"+name, help, nil, nil)
}

// Describe makes an Inbox a prometheus.Collector with the counters of Stats as its metrics:
// redelivery_inbox_duplicates_total and so on. To register several Inboxes, give each a label with
// prometheus.WrapRegistererWith.
func (i *Inbox) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		ch <- d.Desc
	}
}

// Collect sends the metrics that Describe describes.
func (i *Inbox) Collect(ch chan<- prometheus.Metric) {
	s := i.Stats()
	for _, d := range descriptions {
		ch <- prometheus.MustNewConstMetric(d.Desc, prometheus.CounterValue, float64(d.of(s)))
	}
}
