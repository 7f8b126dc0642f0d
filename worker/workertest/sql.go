package workertest

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// OpenSQL is sql.Open for a test with Interrupt: each statement and each commit of the database is a step, if
// ExecContext, QueryContext or BeginTx gets the handler's context, or one derived from it. A commit that is cut off
// never returns its connection, so the database must allow more than one connection.
func OpenSQL(d driver.Driver, dataSource string) (*sql.DB, error) {
	if d, ok := d.(driver.DriverContext); ok {
		c, err := d.OpenConnector(dataSource)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(stepConnector{c}), nil
	}
	return sql.OpenDB(stepConnector{dataSourceConnector{d, dataSource}}), nil
}

// dataSourceConnector is the connector of a driver that has none of its own.
type dataSourceConnector struct {
	driver     driver.Driver
	dataSource string
}

func (c dataSourceConnector) Connect(context.Context) (driver.Conn, error) {
	return c.driver.Open(c.dataSource)
}
func (c dataSourceConnector) Driver() driver.Driver { return c.driver }

type stepConnector struct{ driver.Connector }

func (c stepConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &stepConn{conn}, nil
}

// stepConn passes all calls on to a connection. If the connection lacks an optional interface, driver.ErrSkip makes
// database/sql use another way.
type stepConn struct{ driver.Conn }

func (c *stepConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if e, ok := c.Conn.(driver.ExecerContext); ok {
		return executed(ctx)(e.ExecContext(ctx, query, args))
	}
	return nil, driver.ErrSkip
}

func (c *stepConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if q, ok := c.Conn.(driver.QueryerContext); ok {
		return queried(ctx)(q.QueryContext(ctx, query, args))
	}
	return nil, driver.ErrSkip
}

func (c *stepConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	p, ok := c.Conn.(driver.ConnPrepareContext)
	if !ok {
		return c.Prepare(query)
	}
	s, err := p.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &stepStmt{s}, nil
}

func (c *stepConn) Prepare(query string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	return &stepStmt{s}, nil
}

func (c *stepConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	if b, ok := c.Conn.(driver.ConnBeginTx); ok {
		tx, err = b.BeginTx(ctx, opts)
	} else {
		tx, err = c.Begin() // an old driver has no other way
	}
	if err != nil {
		return nil, err
	}
	return stepTx{tx, ctx}, nil
}

func (c *stepConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *stepConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *stepConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

type stepStmt struct{ driver.Stmt }

func (s *stepStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if e, ok := s.Stmt.(driver.StmtExecContext); ok {
		return executed(ctx)(e.ExecContext(ctx, args))
	}
	return executed(ctx)(s.Exec(values(args))) // an old driver has no other way
}

func (s *stepStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if q, ok := s.Stmt.(driver.StmtQueryContext); ok {
		return queried(ctx)(q.QueryContext(ctx, args))
	}
	return queried(ctx)(s.Query(values(args))) // an old driver has no other way
}

func values(args []driver.NamedValue) []driver.Value {
	all := make([]driver.Value, len(args))
	for i, a := range args {
		all[i] = a.Value
	}
	return all
}

func executed(ctx context.Context) func(driver.Result, error) (driver.Result, error) {
	return func(r driver.Result, err error) (driver.Result, error) {
		if err == nil {
			Step(ctx)
		}
		return r, err
	}
}

// queried closes the rows of a statement that is cut off: the caller never gets them.
func queried(ctx context.Context) func(driver.Rows, error) (driver.Rows, error) {
	return func(rows driver.Rows, err error) (driver.Rows, error) {
		if err != nil {
			return nil, err
		}
		returned := false
		defer func() {
			if !returned {
				_ = rows.Close()
			}
		}()
		Step(ctx)
		returned = true
		return rows, nil
	}
}

type stepTx struct {
	driver.Tx
	ctx context.Context //nolint:containedctx // Commit has none
}

func (tx stepTx) Commit() error {
	err := tx.Tx.Commit()
	if err == nil {
		Step(tx.ctx)
	}
	return err
}
