package ui_test

import (
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/race"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
)

// heap returns how much memory is in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// On an idle computer the server begins to send each page within 300 ms, even while it reads letters. The server must
// not keep payloads of letters in memory.
func TestPagesAboutManyMessagesComeSoonAndKeepNoPayloads(t *testing.T) {
	if testing.Short() {
		t.Skip("50,000 letters take seconds")
	}
	s := newSite(t, nil)
	s.storeLetters(50_000, 40)
	entries := make([]int64, 10_000)
	for i := range entries {
		entries[i] = int64(i + 1)
	}
	s.logFailures(entries...)
	before := heap()
	pages := map[string]string{"": "Dead letters", groupsOf(dead): "50,000 letters",
		"group?topic=" + url.QueryEscape(dead): "50,000 letters", "letters": "orders-billing-DLQ",
		waitingOf: "10,000 failed messages"}
	longest := map[string]time.Duration{}
	most := int64(0)
	for begin := time.Now(); len(pages) > 0 && time.Since(begin) < waittest.Limit; {
		for page, want := range pages {
			asked := time.Now()
			resp, err := s.browser.Get(s.server.URL + "/debug/" + page)
			longest[page] = max(longest[page], time.Since(asked))
			require.NoError(t, err)
			status, body := read(t, resp)
			require.Equal(t, http.StatusOK, status)
			require.Less(t, len(body), 1_000_000, page)
			if strings.Contains(body, want) {
				delete(pages, page)
			}
		}
		most = max(most, heap()-before)
	}
	require.Empty(t, pages, "pages that are not ready")
	body := s.await(groupsOf(dead), "40 causes")
	require.Contains(t, body, "50,000 letters")
	held := heap() - before
	t.Logf("first bytes: %v; %d MB are kept now, at most %d MB were kept before", longest, held>>20, most>>20)
	require.Less(t, held, int64(64<<20))
	limit := 2 * time.Second // 300 ms on an idle computer
	if race.Enabled {
		limit *= 5
	}
	for page, took := range longest {
		require.Less(t, took, limit, page)
	}
}
