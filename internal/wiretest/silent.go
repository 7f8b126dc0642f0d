package wiretest

import "net/http"

// Silent is a http.RoundTripper of a server that accepts requests and never answers.
type Silent struct{}

// RoundTrip waits until the request is given up.
func (Silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}
