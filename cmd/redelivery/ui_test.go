package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUIRefusesWrongCommandLines(t *testing.T) {
	short := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(short, []byte("short\n"), 0o600))
	for _, c := range []struct{ line, want string }{
		{"-listen 7070", `-listen is "7070", want an address such as 127.0.0.1:7070`},
		{"-consumer billing", "-consumer is given, want -config too"},
		{"-url pulsar://localhost:1 -admin-url http://localhost:1 -encryption-key-name k",
			"-encryption-key-name is given, want -encryption-private-key too"},
		{"-config=", `"" for flag -config: want a file`},
		{"-token-file x -insecure-listen", "-token-file and -insecure-listen are both given, want one of them"},
		{"-namespace public", `-namespace is "public", want tenant/namespace`},
		{"-export-dir ui.go", `-export-dir is "ui.go", want a directory`},
		{"-listen 127.0.0.1:0 -token-file " + short, "has 5 characters, want at least 16"},
	} {
		var out, errs bytes.Buffer
		require.NotZero(t, uiCommand(strings.Fields(c.line), &out, &errs), c.line)
		require.Contains(t, errs.String(), c.want)
	}
}

// On a loopback address, and with -insecure-listen, the pages need no token.
func TestUIAsksForATokenBeyondLoopback(t *testing.T) {
	b := newBroker(t)
	for listen, want := range map[string]int{"127.0.0.1:0": http.StatusOK, "0.0.0.0:0": http.StatusUnauthorized,
		"0.0.0.0:0 -insecure-listen": http.StatusOK} {
		ctx, stop := context.WithCancel(context.Background())
		r, w := io.Pipe()
		f := &uiFlags{stdout: w, stderr: io.Discard}
		require.NoError(t, f.parse(strings.Fields("-listen "+listen+" orders")))
		ended := make(chan error, 1)
		go func() { ended <- f.run(ctx) }()
		var address string
		_, err := fmt.Fscan(r, &address)
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, r) }()
		plain, query, token := strings.Cut(address, "?token=")
		require.Equal(t, want == http.StatusUnauthorized, token)
		require.Equal(t, want == http.StatusUnauthorized, len(query) > 16)
		client := &http.Client{Timeout: time.Minute}
		resp, err := client.Get(strings.Replace(plain, "[::]", "127.0.0.1", 1))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode, listen)
		stop()
		require.NoError(t, <-ended)
	}
	b.client.Close()
}
