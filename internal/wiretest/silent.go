package wiretest

import "net/http"

// Silent is a http.RoundTripper that imitates a server that accepts requests but never answers.
type Silent struct{}

// RoundTrip waits until the client gives up.
func (Silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}
