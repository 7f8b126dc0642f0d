package wire

// PartitionedMetadata asks how many partitions a topic has.
type PartitionedMetadata struct {
	Topic   string
	Request uint64
}

// Type implements Command.
func (*PartitionedMetadata) Type() Type { return TypePartitionedMetadata }

func (m *PartitionedMetadata) fields(c *codec) {
	c.string(1, required, &m.Topic)
	c.uint64(2, required, 0, &m.Request)
}

// PartitionedMetadataResponse answers PartitionedMetadata. To clients the
// presence of Error alone is a failure, so it is never UnknownError.
type PartitionedMetadataResponse struct {
	Partitions uint32
	Request    uint64
	Response   LookupType
	Error      ServerError
	Message    string
}

// Type implements Command.
func (*PartitionedMetadataResponse) Type() Type { return TypePartitionedMetadataResponse }

func (m *PartitionedMetadataResponse) fields(c *codec) {
	c.uint32(1, optional, 0, &m.Partitions)
	c.uint64(2, required, 0, &m.Request)
	enum(c, 3, optional, &m.Response)
	enum(c, 4, optional, &m.Error)
	c.string(5, optional, &m.Message)
}

// Lookup asks which broker serves a topic.
type Lookup struct {
	Topic   string
	Request uint64
}

// Type implements Command.
func (*Lookup) Type() Type { return TypeLookup }

func (m *Lookup) fields(c *codec) {
	c.string(1, required, &m.Topic)
	c.uint64(2, required, 0, &m.Request)
}

// LookupResponse answers Lookup; the same holds for its Error.
type LookupResponse struct {
	URL           string
	Response      LookupType
	Request       uint64
	Authoritative bool
	Error         ServerError
	Message       string
	ByServiceURL  bool // the client connects to where it asked
}

// Type implements Command.
func (*LookupResponse) Type() Type { return TypeLookupResponse }

func (m *LookupResponse) fields(c *codec) {
	c.string(1, optional, &m.URL)
	enum(c, 3, optional, &m.Response)
	c.uint64(4, required, 0, &m.Request)
	c.bool(5, optional, false, &m.Authoritative)
	enum(c, 6, optional, &m.Error)
	c.string(7, optional, &m.Message)
	c.bool(8, optional, false, &m.ByServiceURL)
}

// GetTopics asks for the topics of a namespace.
type GetTopics struct {
	Request   uint64
	Namespace string
	Mode      TopicsMode
	Pattern   string
	Hash      string
}

// Type implements Command.
func (*GetTopics) Type() Type { return TypeGetTopics }

func (m *GetTopics) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.string(2, required, &m.Namespace)
	enum(c, 3, optional, &m.Mode)
	c.string(4, optional, &m.Pattern)
	c.string(5, optional, &m.Hash)
}

// GetTopicsResponse answers GetTopics.
type GetTopicsResponse struct {
	Request  uint64
	Topics   []string
	Filtered bool
	Hash     string
	Changed  bool
}

// Type implements Command.
func (*GetTopicsResponse) Type() Type { return TypeGetTopicsResponse }

func (m *GetTopicsResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.strings(2, &m.Topics)
	c.bool(3, optional, false, &m.Filtered)
	c.string(4, optional, &m.Hash)
	c.bool(5, optional, true, &m.Changed)
}

// GetSchema asks for a schema of a topic, by default the newest.
type GetSchema struct {
	Request uint64
	Topic   string
	Version []byte
}

// Type implements Command.
func (*GetSchema) Type() Type { return TypeGetSchema }

func (m *GetSchema) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.string(2, required, &m.Topic)
	c.bytes(3, optional, &m.Version)
}

// GetSchemaResponse answers GetSchema.
type GetSchemaResponse struct {
	Request uint64
	Error   ServerError
	Message string
	Schema  *Schema
	Version []byte
}

// Type implements Command.
func (*GetSchemaResponse) Type() Type { return TypeGetSchemaResponse }

func (m *GetSchemaResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	enum(c, 2, optional, &m.Error)
	c.string(3, optional, &m.Message)
	one(c, 4, optional, &m.Schema)
	c.bytes(5, optional, &m.Version)
}

// GetOrCreateSchema stores a schema unless the topic has it.
type GetOrCreateSchema struct {
	Request uint64
	Topic   string
	Schema  *Schema
}

// Type implements Command.
func (*GetOrCreateSchema) Type() Type { return TypeGetOrCreateSchema }

func (m *GetOrCreateSchema) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.string(2, required, &m.Topic)
	one(c, 3, required, &m.Schema)
}

// GetOrCreateSchemaResponse answers GetOrCreateSchema.
type GetOrCreateSchemaResponse struct {
	Request uint64
	Error   ServerError
	Message string
	Version []byte
}

// Type implements Command.
func (*GetOrCreateSchemaResponse) Type() Type { return TypeGetOrCreateSchemaResponse }

func (m *GetOrCreateSchemaResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	enum(c, 2, optional, &m.Error)
	c.string(3, optional, &m.Message)
	c.bytes(4, optional, &m.Version)
}
