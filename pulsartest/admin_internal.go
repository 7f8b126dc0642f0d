package pulsartest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

type internalStats struct {
	NumberOfEntries    int                    `json:"numberOfEntries"`
	TotalSize          int                    `json:"totalSize"`
	LastConfirmedEntry string                 `json:"lastConfirmedEntry"`
	Ledgers            []ledgerStats          `json:"ledgers"`
	Cursors            map[string]cursorStats `json:"cursors"`
}

type ledgerStats struct {
	LedgerID uint64 `json:"ledgerId"`
	Entries  int    `json:"entries"`
	Size     int    `json:"size"`
}

type cursorStats struct {
	MarkDeletePosition          string `json:"markDeletePosition"`
	ReadPosition                string `json:"readPosition"`
	IndividuallyDeletedMessages string `json:"individuallyDeletedMessages"`
}

func (s *Server) adminInternalStats(w http.ResponseWriter, r *http.Request) error {
	n, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	if s.partitions[n] > 0 {
		return failf(wire.TopicNotFound, "Topic %s is partitioned: ask for one of its partitions", n)
	}
	reply(w, http.StatusOK, topics[0].internalStats())
	return nil
}

func (t *topic) internalStats() *internalStats {
	st := &internalStats{NumberOfEntries: len(t.log), TotalSize: t.bytes, Ledgers: []ledgerStats{},
		Cursors:            map[string]cursorStats{},
		LastConfirmedEntry: entryText(t.lastEntry())}
	for _, e := range t.log {
		if n := len(st.Ledgers); n == 0 || st.Ledgers[n-1].LedgerID != e.ledger {
			st.Ledgers = append(st.Ledgers, ledgerStats{LedgerID: e.ledger})
		}
		if last := &st.Ledgers[len(st.Ledgers)-1]; e.ledger != t.ledger { // the current ledger is counted when it ends
			last.Entries++
			last.Size += len(e.data)
		}
	}
	if n := len(st.Ledgers); n == 0 || st.Ledgers[n-1].LedgerID != t.ledger {
		st.Ledgers = append(st.Ledgers, ledgerStats{LedgerID: t.ledger})
	}
	for name, sub := range t.subs {
		st.Cursors[admin.CursorName(name)] = cursorStats{
			MarkDeletePosition:          entryText(sub.markDelete()),
			ReadPosition:                t.next(sub.cursor.read),
			IndividuallyDeletedMessages: sub.spans(),
		}
	}
	return st
}

func entryText(id *wire.MessageID) string {
	return fmt.Sprintf("%d:%d", int64(id.Ledger), int64(id.Entry))
}

// lastEntry returns the position of the last entry. Without entries, it is entry -1 of the current ledger.
func (t *topic) lastEntry() *wire.MessageID {
	if len(t.log) == 0 {
		return &wire.MessageID{Ledger: t.ledger, Entry: wire.Absent}
	}
	return t.last()
}

// next returns the position of the entry at an offset, or the position that the topic's next entry will have if the
// offset is past the end.
func (t *topic) next(offset int) string {
	switch {
	case offset < len(t.log):
		return fmt.Sprintf("%d:%d", t.log[offset].ledger, t.log[offset].id)
	case len(t.log) > 0 && t.log[len(t.log)-1].ledger == t.ledger:
		return fmt.Sprintf("%d:%d", t.ledger, t.log[len(t.log)-1].id+1)
	}
	return fmt.Sprintf("%d:0", t.ledger)
}

// spans returns the acknowledged entries after the mark as ranges "(a..b]", each within a ledger. a is the entry before
// the first acknowledged entry of the range, and b is the last one.
func (s *subscription) spans() string {
	var spans []string
	log := s.topic.log
	for i := s.cursor.mark; i < len(log); i++ {
		if !s.cursor.acked(i) {
			continue
		}
		first := i
		for i+1 < len(log) && s.cursor.acked(i+1) && log[i+1].ledger == log[first].ledger {
			i++
		}
		spans = append(spans, fmt.Sprintf("(%d:%d..%d:%d]", log[first].ledger, int64(log[first].id)-1, log[i].ledger,
			log[i].id))
	}
	return "[" + strings.Join(spans, ",") + "]"
}
