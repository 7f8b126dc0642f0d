package deadletter

import "context"

// planReplay is the dry run of a replay.
func (t *Topic) planReplay(ctx context.Context, o ReplayOptions) (report Report, err error) {
	report.Creates, err = t.guard(ctx)
	if err != nil {
		return report, err
	}
	journal, err := t.readJournal(ctx)
	if err == nil {
		o, err = t.directed(ctx, o, journal.run)
	}
	if err != nil {
		return report, err
	}
	for l, err := range t.Peek(ctx, 0) {
		if err != nil {
			return report, err
		}
		report.Seen++
		left, _, err := t.check(ctx, &o, &l)
		var topic string
		if err == nil && left == "" {
			topic, left, err = t.topicFor(ctx, &o, &l, &report)
		}
		if err != nil {
			return report, err
		}
		if left != "" {
			report.leave(left, &l)
			continue
		}
		report.target(topic).Count++
		report.Done++
		if report.Done == o.Max {
			break
		}
	}
	return report, report.missed()
}
