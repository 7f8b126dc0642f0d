package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdAuthResponse refreshes credentials. They are not checked.
type cmdAuthResponse struct{ ClientVersion string }

var typeAuthResponse = wire.Register[cmdAuthResponse](37, "AUTH_RESPONSE")

func (*cmdAuthResponse) Type() wire.Type { return typeAuthResponse }

func (m *cmdAuthResponse) Fields(c *wire.Codec) { c.String(1, wire.Optional, &m.ClientVersion) }

func (*cmdAuthResponse) handle(*session) error { return nil }
