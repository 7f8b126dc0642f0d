package wire

// Connect opens a session.
type Connect struct {
	ClientVersion   string
	ProtocolVersion int32
	AuthMethod      string
	Features        *FeatureFlags
}

// Type implements Command.
func (*Connect) Type() Type { return TypeConnect }

func (m *Connect) fields(c *codec) {
	c.string(1, required, &m.ClientVersion)
	c.int32(4, optional, 0, &m.ProtocolVersion)
	c.string(5, optional, &m.AuthMethod)
	one(c, 10, optional, &m.Features)
}

// Connected answers Connect.
type Connected struct {
	ServerVersion   string
	ProtocolVersion int32
	MaxMessageSize  int32
	Features        *FeatureFlags
}

// Type implements Command.
func (*Connected) Type() Type { return TypeConnected }

func (m *Connected) fields(c *codec) {
	c.string(1, required, &m.ServerVersion)
	c.int32(2, optional, 0, &m.ProtocolVersion)
	c.int32(3, optional, 0, &m.MaxMessageSize)
	one(c, 4, optional, &m.Features)
}

// Ping asks for a Pong.
type Ping struct{}

// Type implements Command.
func (*Ping) Type() Type { return TypePing }

func (*Ping) fields(*codec) {}

// Pong answers a Ping.
type Pong struct{}

// Type implements Command.
func (*Pong) Type() Type { return TypePong }

func (*Pong) fields(*codec) {}

// AuthResponse refreshes credentials, which nobody checks.
type AuthResponse struct{ ClientVersion string }

// Type implements Command.
func (*AuthResponse) Type() Type { return TypeAuthResponse }

func (m *AuthResponse) fields(c *codec) { c.string(1, optional, &m.ClientVersion) }

// Success answers a request that has nothing to return.
type Success struct{ Request uint64 }

// Type implements Command.
func (*Success) Type() Type { return TypeSuccess }

func (m *Success) fields(c *codec) { c.uint64(1, required, 0, &m.Request) }

// Error refuses a request.
type Error struct {
	Request uint64
	Error   ServerError
	Message string
}

// Type implements Command.
func (*Error) Type() Type { return TypeError }

func (m *Error) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	enum(c, 2, required, &m.Error)
	c.string(3, required, &m.Message)
}

// TransactionsConnect asks for the transaction coordinator.
type TransactionsConnect struct{ Request, Coordinator uint64 }

// Type implements Command.
func (*TransactionsConnect) Type() Type { return TypeTransactionsConnect }

func (m *TransactionsConnect) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.uint64(2, required, 0, &m.Coordinator)
}

// TransactionsConnectResponse answers TransactionsConnect, always with an error.
type TransactionsConnectResponse struct {
	Request uint64
	Error   ServerError
	Message string
}

// Type implements Command.
func (*TransactionsConnectResponse) Type() Type { return TypeTransactionsConnectResponse }

func (m *TransactionsConnectResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	enum(c, 2, optional, &m.Error)
	c.string(3, optional, &m.Message)
}
