package admin

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/wiretest"
)

// Pulsar reads a plus in a path as a blank, as in a query.
func TestPathOfATopicIsEncodedAsPulsarDecodesIt(t *testing.T) {
	for name, want := range map[string]string{"persistent://a/b/x": "persistent/a/b/x",
		"persistent://a/b/x+y": "persistent/a/b/x%2By",
		"persistent://a/b/x y": "persistent/a/b/x%20y", "persistent://a/b/x/y%2B": "persistent/a/b/x%2Fy%252B",
		"persistent://a/b": "persistent/a/b"} {
		require.Equal(t, want, Topic(name), name)
	}
}

// If the caller's own deadline ends the call, the error is that of the context.
func TestErrorNamesAnAPIThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := API{URL: "http://nobody:8080", Client: &http.Client{Transport: wiretest.Silent{}}}
		begin := time.Now()
		err := api.Call(t.Context(), http.MethodGet, "clusters", nil, nil)
		require.EqualError(t, err, "the admin API at http://nobody:8080 did not answer within 30s")
		require.Equal(t, 30*time.Second, time.Since(begin))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, api.Call(ctx, http.MethodGet, "clusters", nil, nil), context.DeadlineExceeded)

		once := Once(t.Context())
		begin = time.Now()
		for range 3 {
			require.EqualError(t, api.Call(once, http.MethodGet, "clusters", nil, nil), err.Error())
		}
		require.Equal(t, 30*time.Second, time.Since(begin), "the second or the third call waited too")
	})
}

func TestClockEndsIfTheAPINeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := API{URL: "http://nobody:8080", Client: &http.Client{Transport: wiretest.Silent{}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		_, err := api.Clock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, Patience, time.Since(begin))
	})
}

// A broker's text about an internal error ends with a stack trace.
func TestErrorLeavesOutTheStackTrace(t *testing.T) {
	reason := `{"reason":"\n --- An unexpected error occurred in the server ---\n\nMessage: For input string: \"x\"\n\nStacktrace:\n\njava.lang.NumberFormatException\n\tat java.base"}`
	for text, want := range map[string]string{
		reason:                     `--- An unexpected error occurred in the server --- Message: For input string: "x"`,
		`{"reason":"no topic"}`:    "no topic",
		"<html>\nBad Gateway":      "<html> Bad Gateway",
		strings.Repeat("ü", 5_000): strings.Repeat("ü", 500) + "…",
	} {
		err := &Error{Method: "GET", Path: "schemas/t", Status: 500, Text: text}
		require.EqualError(t, err, "GET schemas/t: 500 Internal Server Error: "+want)
	}
}
