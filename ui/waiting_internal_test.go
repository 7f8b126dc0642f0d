package ui

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// noTopics is an admin API of a broker without topics.
type noTopics struct{}

func (noTopics) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNotFound, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func TestPageOfMissingLogTakesNoPlaceAfterItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := New(Options{Client: struct{ pulsar.Client }{},
			Admin: Admin{URL: "http://broker", Client: &http.Client{Transport: noTopics{}}}})
		require.NoError(t, err)
		defer h.Close()
		open := func(i int) error {
			_, _, err := h.follow(fmt.Sprintf("persistent://public/default/orders-%d", i), "billing")
			return err
		}
		for i := range maxLogs {
			require.NoError(t, open(i))
		}
		synctest.Wait()
		require.ErrorContains(t, open(maxLogs), "no more logs of attempts can be opened")
		time.Sleep(followFor)
		require.ErrorIs(t, open(1), errNoLog)
		time.Sleep(time.Second)
		require.NoError(t, open(maxLogs))
		synctest.Wait()
		require.Len(t, h.logs.all, 2)
	})
}
