package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	grpc_auth "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/cors"
	"github.com/rs/zerolog"
	"github.com/sean-/sysexits"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // enable gzip compression on all derivative servers

	"github.com/authzed/consistent"

	"github.com/authzed/spicedb/internal/auth"
	"github.com/authzed/spicedb/internal/datastore/proxy"
	"github.com/authzed/spicedb/internal/datastore/proxy/schemacaching"
	"github.com/authzed/spicedb/internal/dispatch"
	clusterdispatch "github.com/authzed/spicedb/internal/dispatch/cluster"
	combineddispatch "github.com/authzed/spicedb/internal/dispatch/combined"
	"github.com/authzed/spicedb/internal/dispatch/graph"
	"github.com/authzed/spicedb/internal/dispatch/keys"
	"github.com/authzed/spicedb/internal/gateway"
	"github.com/authzed/spicedb/internal/grpchelpers"
	log "github.com/authzed/spicedb/internal/logging"
	"github.com/authzed/spicedb/internal/middleware/memoryprotection"
	"github.com/authzed/spicedb/internal/services"
	dispatchSvc "github.com/authzed/spicedb/internal/services/dispatch"
	"github.com/authzed/spicedb/internal/services/health"
	v1svc "github.com/authzed/spicedb/internal/services/v1"
	"github.com/authzed/spicedb/internal/telemetry"
	"github.com/authzed/spicedb/pkg/cache"
	datastorecfg "github.com/authzed/spicedb/pkg/cmd/datastore"
	"github.com/authzed/spicedb/pkg/cmd/util"
	"github.com/authzed/spicedb/pkg/datalayer"
	"github.com/authzed/spicedb/pkg/datastore"
	"github.com/authzed/spicedb/pkg/middleware/consistency"
	"github.com/authzed/spicedb/pkg/middleware/requestid"
	"github.com/authzed/spicedb/pkg/query"
	"github.com/authzed/spicedb/pkg/spiceerrors"
)

// ConsistentHashringBuilder is a balancer Builder that uses xxhash as the
// underlying hash for the ConsistentHashringBalancers it creates.
var ConsistentHashringBuilder = consistent.NewBuilder(xxhash.Sum64)

var DefaultMemoryUsageProvider memoryprotection.MemoryUsageProvider

//go:generate go run github.com/ecordell/optgen -output zz_generated.options.go . Config
type Config struct {
	// API config
	GRPCServer             util.GRPCServerConfig `debugmap:"visible"`
	GRPCAuthFunc           grpc_auth.AuthFunc    `debugmap:"visible"`
	PresharedSecureKey     []string              `debugmap:"sensitive" default:"[]"`
	ShutdownGracePeriod    time.Duration         `debugmap:"visible"   default:"5s"`
	DisableVersionResponse bool                  `debugmap:"visible"`
	ServerName             string                `debugmap:"visible"`

	// GRPC Gateway config
	HTTPGateway                    util.HTTPServerConfig `debugmap:"visible"`
	HTTPGatewayUpstreamAddr        string                `debugmap:"visible"`
	HTTPGatewayUpstreamTLSCertPath string                `debugmap:"visible"`
	HTTPGatewayCorsEnabled         bool                  `debugmap:"visible"`
	HTTPGatewayCorsAllowedOrigins  []string              `debugmap:"visible-format"`

	// Datastore
	DatastoreConfig datastorecfg.Config `debugmap:"visible"`
	Datastore       datastore.Datastore `debugmap:"visible"`

	// Datastore usage
	MaxCaveatContextSize       int `debugmap:"visible" default:"4096"`
	MaxRelationshipContextSize int `debugmap:"visible" default:"25_000"`

	// Namespace cache
	EnableExperimentalWatchableSchemaCache bool          `debugmap:"visible"`
	SchemaWatchHeartbeat                   time.Duration `debugmap:"visible" default:"1s"`
	NamespaceCacheConfig                   CacheConfig   `debugmap:"visible"`

	// Stored schema hash cache
	StoredSchemaCacheConfig CacheConfig `debugmap:"visible"`

	// Schema options
	SchemaPrefixesRequired bool   `debugmap:"visible"`
	ExperimentalSchemaMode string `debugmap:"visible" default:"read-legacy-write-legacy"`

	// Dispatch options
	DispatchServer                    util.GRPCServerConfig    `debugmap:"visible"`
	DispatchMaxDepth                  uint32                   `debugmap:"visible" default:"50"`
	GlobalDispatchConcurrencyLimit    uint16                   `debugmap:"visible" default:"50"`
	DispatchConcurrencyLimits         graph.ConcurrencyLimits  `debugmap:"visible"`
	DispatchUpstreamAddr              string                   `debugmap:"visible"`
	DispatchUpstreamCAPath            string                   `debugmap:"visible"`
	DispatchUpstreamTimeout           time.Duration            `debugmap:"visible" default:"60s"`
	DispatchClientMetricsEnabled      bool                     `debugmap:"visible" default:"true"`
	DispatchClientMetricsPrefix       string                   `debugmap:"visible"`
	DispatchClusterMetricsEnabled     bool                     `debugmap:"visible" default:"true"`
	DispatchClusterMetricsPrefix      string                   `debugmap:"visible"`
	Dispatcher                        dispatch.Dispatcher      `debugmap:"visible"`
	QueryPlanMetadata                 *query.QueryPlanMetadata `debugmap:"hidden"`
	DispatchHashringReplicationFactor uint16                   `debugmap:"visible" default:"100"`
	DispatchHashringSpread            uint8                    `debugmap:"visible" default:"1"`
	DispatchChunkSize                 uint16                   `debugmap:"visible" default:"100"`

	DispatchSecondaryUpstreamAddrs               map[string]string `debugmap:"visible"`
	DispatchSecondaryUpstreamExprs               map[string]string `debugmap:"visible"`
	DispatchSecondaryMaximumPrimaryHedgingDelays map[string]string `debugmap:"visible"`
	DispatchPrimaryDelayForTesting               time.Duration     `debugmap:"hidden"`

	DispatchCacheConfig         CacheConfig `debugmap:"visible"`
	ClusterDispatchCacheConfig  CacheConfig `debugmap:"visible"`
	LR3ResourceChunkCacheConfig CacheConfig `debugmap:"visible"`

	// API Behavior
	DisableV1SchemaAPI                 bool          `debugmap:"visible"`
	V1SchemaAdditiveOnly               bool          `debugmap:"visible"`
	MaximumUpdatesPerWrite             uint16        `debugmap:"visible" default:"1000"`
	MaximumPreconditionCount           uint16        `debugmap:"visible" default:"1000"`
	MaxDatastoreReadPageSize           uint64        `debugmap:"visible" default:"1000"`
	StreamingAPITimeout                time.Duration `debugmap:"visible" default:"30s"`
	WatchHeartbeat                     time.Duration `debugmap:"visible" default:"1s"`
	MaxReadRelationshipsLimit          uint32        `debugmap:"visible" default:"1000"`
	MaxDeleteRelationshipsLimit        uint32        `debugmap:"visible" default:"1000"`
	MaxLookupResourcesLimit            uint32        `debugmap:"visible" default:"1000"`
	MaxBulkExportRelationshipsLimit    uint32        `debugmap:"visible" default:"10000"`
	EnableExperimentalLookupResources  bool          `debugmap:"visible"`
	ExperimentalLookupResourcesVersion string        `debugmap:"visible"`
	ExperimentalQueryPlan              []string      `debugmap:"visible"`
	EnableRelationshipExpiration       bool          `debugmap:"visible" default:"true"`
	EnableRevisionHeartbeat            bool          `debugmap:"visible" default:"true"`
	EnablePerformanceInsightMetrics    bool          `debugmap:"visible"`
	MismatchZedTokenBehavior           string        `debugmap:"visible" default:"full-consistency"`

	// Additional Services
	MetricsAPI util.HTTPServerConfig `debugmap:"visible"`

	// Middleware for grpc API
	UnaryMiddlewareModification     []MiddlewareModification[grpc.UnaryServerInterceptor]  `debugmap:"hidden"`
	StreamingMiddlewareModification []MiddlewareModification[grpc.StreamServerInterceptor] `debugmap:"hidden"`

	// Middleware for Memory Protection
	EnableMemoryProtectionMiddleware bool `debugmap:"visible" default:"true"`

	// Middleware for internal dispatch API
	DispatchUnaryMiddleware     []grpc.UnaryServerInterceptor  `debugmap:"hidden"`
	DispatchStreamingMiddleware []grpc.StreamServerInterceptor `debugmap:"hidden"`

	// Telemetry
	SilentlyDisableTelemetry bool          `debugmap:"visible"`
	TelemetryCAOverridePath  string        `debugmap:"visible"`
	TelemetryEndpoint        string        `debugmap:"visible" default:"https://telemetry.authzed.com"`
	TelemetryInterval        time.Duration `debugmap:"visible" default:"1h"`

	// OpenTelemetry tracing
	OTel OTelConfig `debugmap:"visible"`

	// Logs
	EnableRequestLogs  bool `debugmap:"visible"`
	EnableResponseLogs bool `debugmap:"visible"`

	// Metrics
	DisableGRPCLatencyHistogram bool `debugmap:"visible"`
}

// SetDefaults is invoked by github.com/creasty/defaults after struct-tag
// defaults are applied. It populates the per-instance defaults that struct
// tags cannot express because the same struct type is embedded in Config in
// multiple places with different defaults (GRPCServer vs. DispatchServer,
// HTTPGateway vs. MetricsAPI, the five CacheConfig sites). It also matches
// the empty (non-nil) slice defaults that RegisterServeFlags writes via
// StringSliceVar so the library and CLI configurations stay identical.
//
// These values must stay in sync with cmd.RegisterServeFlags;
// TestConfigDefaultsMatchCLIFlags in pkg/cmd enforces that parity.
func (c *Config) SetDefaults() {
	c.GRPCServer.Address = ":50051"
	c.GRPCServer.Enabled = true
	c.DispatchServer.Address = ":50053"

	c.HTTPGateway.HTTPAddress = ":8443"
	c.MetricsAPI.HTTPAddress = ":9090"
	c.MetricsAPI.HTTPEnabled = true

	// NOTE: NumCounters stays 0 here to match RegisterCacheFlags, which
	// hardcodes the flag default to 0 (the flag is deprecated and unused).
	c.NamespaceCacheConfig = CacheConfig{Name: "namespace", Enabled: true, Metrics: true, MaxCost: "32MiB"}
	c.DispatchCacheConfig = CacheConfig{Name: "dispatch", Enabled: true, Metrics: true, MaxCost: "30%"}
	c.ClusterDispatchCacheConfig = CacheConfig{Name: "cluster_dispatch", Enabled: true, Metrics: true, MaxCost: "70%"}
	c.LR3ResourceChunkCacheConfig = CacheConfig{Name: "lr3_chunk", Enabled: true, MaxCost: "50MiB"}
	c.StoredSchemaCacheConfig = CacheConfig{Name: "stored_schema", Enabled: true, Metrics: true, MaxCost: "32MiB"}

	if c.HTTPGatewayCorsAllowedOrigins == nil {
		c.HTTPGatewayCorsAllowedOrigins = []string{"*"}
	}
}

// Complete validates the config and fills out defaults.
// if there is no error, a completedServerConfig (with limited options for
// mutation) is returned.
func (c *Config) Complete(ctx context.Context) (RunnableServer, error) {
	return c.complete(ctx)
}

func (c *Config) complete(ctx context.Context) (*completedServerConfig, error) {
	closeables := util.CloseableStack{}
	var err error
	defer func() {
		// if an error happens during the execution of Complete, all resources are cleaned up
		if closeableErr := closeables.CloseIfError(err); closeableErr != nil {
			log.Ctx(ctx).Err(closeableErr).Msg("failed to clean up resources on Config.Complete")
		}
	}()

	err = c.handleGrpcAuthn(ctx)
	if err != nil {
		return nil, err
	}

	nscc, err := CompleteCache[cache.StringKey, schemacaching.CacheEntry](c.OTel.PrometheusRegistry, &c.NamespaceCacheConfig)
	if err != nil {
		return nil, fmt.Errorf("failed to create namespace cache: %w", err)
	}
	log.Ctx(ctx).Info().EmbedObject(nscc).Msg("configured namespace cache")

	ds := c.Datastore
	if ds == nil {
		var err error
		c.supportOldAndNewReadReplicaConnectionPoolFlags()
		ds, err = datastorecfg.NewDatastore(ctx, c.DatastoreConfig.ToOption(),
			// Datastore's filter maximum ID count is set to the max size, since the number of elements to be dispatched
			// are at most the number of elements returned from a datastore query
			datastorecfg.WithFilterMaximumIDCount(c.DispatchChunkSize),
			datastorecfg.WithEnableRevisionHeartbeat(c.EnableRevisionHeartbeat),
		)
		if err != nil {
			return nil, spiceerrors.NewTerminationErrorBuilder(fmt.Errorf("failed to create datastore: %w", err)).
				Component("datastore").
				ExitCode(sysexits.Config).
				Error()
		}
	} else {
		// the server didn't create this datastore, so it should not close it
		ds = NoCloseProxy(ds)
	}

	cachingMode := schemacaching.JustInTimeCaching
	if c.EnableExperimentalWatchableSchemaCache {
		cachingMode = schemacaching.WatchIfSupported
	}

	storedSchemaCache, err := CompleteCache[datalayer.SchemaCacheKey, *datastore.ReadOnlyStoredSchema](c.OTel.PrometheusRegistry, &c.StoredSchemaCacheConfig)
	if err != nil {
		return nil, fmt.Errorf("failed to create stored schema cache: %w", err)
	}
	log.Ctx(ctx).Info().EmbedObject(storedSchemaCache).Msg("configured stored schema cache")
	closeables.AddWithoutError(storedSchemaCache.Close)

	// Parse schema mode early so proxy setup can depend on it.
	var dlOpts []datalayer.DataLayerOption
	dlOpts = append(dlOpts, datalayer.WithSchemaCache(storedSchemaCache))
	schemaMode := datalayer.SchemaModeReadLegacyWriteLegacy
	if c.ExperimentalSchemaMode != "" {
		schemaMode, err = datalayer.ParseSchemaMode(c.ExperimentalSchemaMode)
		if err != nil {
			return nil, err
		}
	}
	dlOpts = append(dlOpts, datalayer.WithSchemaMode(schemaMode))

	ds = proxy.NewObservableDatastoreProxy(ds)
	ds = proxy.NewSingleflightDatastoreProxy(ds)

	// The legacy namespace caching proxy caches per-revision namespace definitions.
	// In new schema mode, reads go through the unified stored schema instead, so
	// the proxy's cache is never populated — only its write-invalidation overhead
	// remains. Skip it when reads come from new schema storage.
	if !schemaMode.ReadsFromNew() {
		ds = schemacaching.NewCachingDatastoreProxy(ds, nscc, c.DatastoreConfig.GCWindow, cachingMode, c.SchemaWatchHeartbeat)
	}
	closeables.AddWithError(ds.Close)

	specificConcurrencyLimits := c.DispatchConcurrencyLimits
	concurrencyLimits := specificConcurrencyLimits.WithOverallDefaultLimit(c.GlobalDispatchConcurrencyLimit)

	// Single QueryPlanMetadata instance shared by the in-process dispatcher and
	// the permissions service so receiver-side stats accumulate into the same
	// store the sender consults via the count-based advisor. Callers may inject
	// their own to share with an externally-constructed dispatcher.
	queryPlanMetadata := c.QueryPlanMetadata
	if queryPlanMetadata == nil {
		queryPlanMetadata = query.NewQueryPlanMetadata()
	}

	// Create LR3 resource chunk cache (used by both dispatcher types)
	lr3ChunkCache, err := CompleteCache[cache.StringKey, any](c.OTel.PrometheusRegistry, &c.LR3ResourceChunkCacheConfig)
	if err != nil {
		return nil, fmt.Errorf("failed to create LR3 resource chunk cache: %w", err)
	}
	closeables.AddWithoutError(lr3ChunkCache.Close)
	log.Ctx(ctx).Info().EmbedObject(lr3ChunkCache).Msg("configured LR3 resource chunk cache")

	dispatcher := c.Dispatcher
	if dispatcher == nil {
		cc, err := CompleteCache[keys.DispatchCacheKey, any](c.OTel.PrometheusRegistry, c.DispatchCacheConfig.WithRevisionParameters(
			c.DatastoreConfig.RevisionQuantization,
			c.DatastoreConfig.FollowerReadDelay,
			c.DatastoreConfig.MaxRevisionStalenessPercent,
		))
		if err != nil {
			return nil, fmt.Errorf("failed to create dispatcher: %w", err)
		}
		closeables.AddWithoutError(cc.Close)
		log.Ctx(ctx).Info().EmbedObject(cc).Msg("configured dispatch cache")

		// TODO: is there a circumstance under which this could be empty?
		dispatchPresharedKey := ""
		if len(c.PresharedSecureKey) > 0 {
			dispatchPresharedKey = c.PresharedSecureKey[0]
		}

		hashringConfigJSON, err := (&consistent.BalancerConfig{
			ReplicationFactor: c.DispatchHashringReplicationFactor,
			Spread:            c.DispatchHashringSpread,
		}).ServiceConfigJSON()
		if err != nil {
			return nil, fmt.Errorf("failed to create gRPC hashring balancer config: %w", err)
		}

		var prometheusRegistry prometheus.Registerer = nil
		if c.DispatchClientMetricsEnabled {
			prometheusRegistry = c.OTel.PrometheusRegistry
		}

		dispatcher, err = combineddispatch.NewDispatcher(
			combineddispatch.UpstreamAddr(c.DispatchUpstreamAddr),
			combineddispatch.UpstreamCAPath(c.DispatchUpstreamCAPath),
			combineddispatch.SecondaryUpstreamAddrs(c.DispatchSecondaryUpstreamAddrs),
			combineddispatch.SecondaryUpstreamExprs(c.DispatchSecondaryUpstreamExprs),
			combineddispatch.SecondaryMaximumPrimaryHedgingDelays(c.DispatchSecondaryMaximumPrimaryHedgingDelays),
			combineddispatch.GrpcPresharedKey(dispatchPresharedKey),
			combineddispatch.GrpcDialOpts(
				grpc.WithStatsHandler(otelgrpc.NewClientHandler()),
				grpc.WithDefaultServiceConfig(hashringConfigJSON),
				grpc.WithChainUnaryInterceptor(
					requestid.UnaryClientInterceptor(),
				),
				grpc.WithChainStreamInterceptor(
					requestid.StreamClientInterceptor(),
				),
			),
			combineddispatch.Metrics(dispatch.MetricsOptions{PrometheusSubsystem: c.DispatchClientMetricsPrefix, PrometheusRegistry: prometheusRegistry}),
			combineddispatch.Cache(cc),
			combineddispatch.ConcurrencyLimits(concurrencyLimits),
			combineddispatch.DispatchChunkSize(c.DispatchChunkSize),
			combineddispatch.RelationshipChunkCache(lr3ChunkCache),
			combineddispatch.StartingPrimaryHedgingDelay(c.DispatchPrimaryDelayForTesting),
			combineddispatch.QueryPlanMetadata(queryPlanMetadata),
		)
		if err != nil {
			return nil, fmt.Errorf("failed to create dispatcher: %w", err)
		}

		log.Ctx(ctx).Info().EmbedObject(concurrencyLimits).RawJSON("balancerconfig", []byte(hashringConfigJSON)).Msg("configured dispatcher")
	}
	closeables.AddWithError(dispatcher.Close)

	var cachingClusterDispatch dispatch.Dispatcher
	if c.DispatchServer.Enabled {
		cdcc, err := CompleteCache[keys.DispatchCacheKey, any](c.OTel.PrometheusRegistry, c.ClusterDispatchCacheConfig.WithRevisionParameters(
			c.DatastoreConfig.RevisionQuantization,
			c.DatastoreConfig.FollowerReadDelay,
			c.DatastoreConfig.MaxRevisionStalenessPercent,
		))
		if err != nil {
			return nil, fmt.Errorf("failed to configure cluster dispatch: %w", err)
		}
		log.Ctx(ctx).Info().EmbedObject(cdcc).Msg("configured cluster dispatch cache")
		closeables.AddWithoutError(cdcc.Close)

		var prometheusRegistry prometheus.Registerer = nil
		if c.DispatchClusterMetricsEnabled {
			prometheusRegistry = c.OTel.PrometheusRegistry
		}

		cachingClusterDispatch, err = clusterdispatch.NewClusterDispatcher(
			dispatcher,
			clusterdispatch.Metrics(dispatch.MetricsOptions{PrometheusSubsystem: c.DispatchClusterMetricsPrefix, PrometheusRegistry: prometheusRegistry}),
			clusterdispatch.Cache(cdcc),
			clusterdispatch.RemoteDispatchTimeout(c.DispatchUpstreamTimeout),
			clusterdispatch.ConcurrencyLimits(concurrencyLimits),
			clusterdispatch.DispatchChunkSize(c.DispatchChunkSize),
			clusterdispatch.RelationshipChunkCache(lr3ChunkCache),
			clusterdispatch.QueryPlanMetadata(queryPlanMetadata),
		)
		if err != nil {
			return nil, fmt.Errorf("failed to configure cluster dispatch: %w", err)
		}
		closeables.AddWithError(cachingClusterDispatch.Close)
	}

	datastoreFeatures, err := ds.Features(ctx)
	if err != nil {
		return nil, fmt.Errorf("error determining datastore features: %w", err)
	}

	v1SchemaServiceOption := services.V1SchemaServiceEnabled
	if c.DisableV1SchemaAPI {
		v1SchemaServiceOption = services.V1SchemaServiceDisabled
	} else if c.V1SchemaAdditiveOnly {
		v1SchemaServiceOption = services.V1SchemaServiceAdditiveOnly
	}

	watchServiceOption := services.WatchServiceEnabled
	if datastoreFeatures.Watch.Status != datastore.FeatureSupported {
		log.Ctx(ctx).Warn().Str("reason", datastoreFeatures.Watch.Reason).Msg("watch api disabled; underlying datastore does not support it")
		watchServiceOption = services.WatchServiceDisabled
	}

	serverName := c.ServerName
	if serverName == "" {
		serverName = "spicedb"
	}

	mismatchZedTokenOption, err := c.handleMismatchZedTokenOption()
	if err != nil {
		return nil, err
	}

	memoryUsageProvider := c.BuildMemoryUsageProvider()

	opts := MiddlewareOption{
		Logger:                    log.Logger,
		AuthFunc:                  c.GRPCAuthFunc,
		EnableVersionResponse:     !c.DisableVersionResponse,
		DispatcherForMiddleware:   dispatcher,
		EnableRequestLog:          c.EnableRequestLogs,
		EnableResponseLog:         c.EnableResponseLogs,
		DisableGRPCHistogram:      c.DisableGRPCLatencyHistogram,
		MiddlewareServiceLabel:    serverName,
		MismatchingZedTokenOption: mismatchZedTokenOption,
		MemoryUsageProvider:       memoryUsageProvider,
	}
	opts = opts.WithDatastore(ds, dlOpts...)

	// Build OTel stats handler options (shared by both gRPC servers)
	// Always disable health check tracing to reduce trace volume
	statsHandlerOpts := []otelgrpc.Option{
		otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
	}

	dispatchGrpcServer, err := c.buildDispatchServer(memoryUsageProvider, ds, cachingClusterDispatch, statsHandlerOpts, dlOpts)
	if err != nil {
		return nil, err
	}
	closeables.AddCloserWithGracePeriod("dispatch server", c.ShutdownGracePeriod, dispatchGrpcServer.GracefulStop, dispatchGrpcServer.ForceStop)

	defaultUnaryMiddlewareChain, err := DefaultUnaryMiddleware(opts)
	if err != nil {
		return nil, fmt.Errorf("error building default middlewares: %w", err)
	}

	defaultStreamingMiddlewareChain, err := DefaultStreamingMiddleware(opts)
	if err != nil {
		return nil, fmt.Errorf("error building default middlewares: %w", err)
	}

	sameMiddlewares := defaultUnaryMiddlewareChain.Names().Equal(defaultStreamingMiddlewareChain.Names())
	if !sameMiddlewares {
		return nil, fmt.Errorf("unary and streaming middlewares differ: %v / %v",
			defaultUnaryMiddlewareChain.Names().AsSlice(),
			defaultStreamingMiddlewareChain.Names().AsSlice(),
		)
	}

	unaryMiddleware, err := c.buildUnaryMiddleware(defaultUnaryMiddlewareChain)
	if err != nil {
		return nil, fmt.Errorf("error building unary middlewares: %w", err)
	}

	streamingMiddleware, err := c.buildStreamingMiddleware(defaultStreamingMiddlewareChain)
	if err != nil {
		return nil, fmt.Errorf("error building streaming middlewares: %w", err)
	}

	// NOTE: Preconditions are disabled if the isolation level is relaxed, as we cannot
	// ensure the transactional guarantees of preconditions in that case.
	maxPreconditionCount := c.MaximumPreconditionCount
	if c.DatastoreConfig.RelaxedIsolationLevel {
		maxPreconditionCount = 0
	}

	permSysConfig := v1svc.PermissionsServerConfig{
		MaxPreconditionsCount:              maxPreconditionCount,
		MaxUpdatesPerWrite:                 c.MaximumUpdatesPerWrite,
		MaximumAPIDepth:                    c.DispatchMaxDepth,
		MaxCaveatContextSize:               c.MaxCaveatContextSize,
		MaxRelationshipContextSize:         c.MaxRelationshipContextSize,
		MaxDatastoreReadPageSize:           c.MaxDatastoreReadPageSize,
		StreamingAPITimeout:                c.StreamingAPITimeout,
		MaxReadRelationshipsLimit:          c.MaxReadRelationshipsLimit,
		MaxDeleteRelationshipsLimit:        c.MaxDeleteRelationshipsLimit,
		MaxLookupResourcesLimit:            c.MaxLookupResourcesLimit,
		MaxBulkExportRelationshipsLimit:    c.MaxBulkExportRelationshipsLimit,
		DispatchChunkSize:                  c.DispatchChunkSize,
		ExpiringRelationshipsEnabled:       c.EnableRelationshipExpiration,
		CaveatTypeSet:                      c.DatastoreConfig.CaveatTypeSet,
		PerformanceInsightMetricsEnabled:   c.EnablePerformanceInsightMetrics,
		EnableExperimentalLookupResources3: c.ExperimentalLookupResourcesVersion == "lr3",
		ExperimentalQueryPlan: v1svc.ExperimentalQueryPlanConfig{
			Check:           slices.Contains(c.ExperimentalQueryPlan, "check"),
			LookupResources: slices.Contains(c.ExperimentalQueryPlan, "lr"),
			LookupSubjects:  slices.Contains(c.ExperimentalQueryPlan, "ls"),
		},
		Metrics:           v1svc.NewMetrics(c.OTel.PrometheusRegistry),
		QueryPlanMetadata: queryPlanMetadata,
	}

	healthManager := health.NewHealthManager(dispatcher, ds)
	grpcServer, err := c.GRPCServer.Complete(zerolog.InfoLevel,
		func(server *grpc.Server) {
			services.RegisterGrpcServices(
				server,
				healthManager,
				dispatcher,
				v1SchemaServiceOption,
				watchServiceOption,
				permSysConfig,
				c.WatchHeartbeat,
			)
		},
		grpc.ChainUnaryInterceptor(unaryMiddleware...),
		grpc.ChainStreamInterceptor(streamingMiddleware...),
		grpc.StatsHandler(otelgrpc.NewServerHandler(statsHandlerOpts...)),
	)
	if err != nil {
		return nil, fmt.Errorf("failed to create gRPC server: %w", err)
	}
	closeables.AddCloserWithGracePeriod("grpc", c.ShutdownGracePeriod, grpcServer.GracefulStop, grpcServer.ForceStop)

	gatewayServer, gatewayCloser, err := c.initializeGateway(ctx)
	if err != nil {
		return nil, err
	}
	closeables.AddCloser(gatewayCloser)
	closeables.AddWithoutError(gatewayServer.Close)

	infoCollector, err := telemetry.SpiceDBClusterInfoCollector(ctx, "environment", c.DatastoreConfig.Engine, ds)
	if err != nil {
		log.Warn().Err(err).Msg("unable to initialize info collector")
	} else {
		if err := prometheus.Register(infoCollector); err != nil {
			log.Warn().Err(err).Msg("unable to initialize info collector")
		}
	}

	var telemetryRegistry *prometheus.Registry

	reporter := telemetry.DisabledReporter
	switch {
	case c.SilentlyDisableTelemetry:
		reporter = telemetry.SilentlyDisabledReporter
	case c.TelemetryEndpoint != "" && c.DatastoreConfig.DisableStats:
		reporter = telemetry.DisabledReporter
	case c.TelemetryEndpoint != "":
		log.Ctx(ctx).Debug().Msg("initializing telemetry collector")
		registry, err := telemetry.RegisterTelemetryCollector(c.DatastoreConfig.Engine, ds)
		if err != nil {
			log.Warn().Err(err).Msg("unable to initialize telemetry collector")
		} else {
			telemetryRegistry = registry
			reporter, err = telemetry.RemoteReporter(
				telemetryRegistry, c.TelemetryEndpoint, c.TelemetryCAOverridePath, c.TelemetryInterval,
			)
			if err != nil {
				log.Warn().Err(err).Msg("unable to initialize telemetry reporter")
				telemetryRegistry = nil
				reporter = telemetry.DisabledReporter
			}
		}
	}

	metricsServer, err := c.MetricsAPI.Complete(zerolog.InfoLevel, MetricsHandler(telemetryRegistry, c))
	if err != nil {
		return nil, fmt.Errorf("failed to initialize metrics server: %w", err)
	}
	closeables.AddWithoutError(metricsServer.Close)

	otelShutdown, err := InitOTelProvider(ctx, c.OTel)
	if err != nil {
		return nil, fmt.Errorf("initializing OTel provider: %w", err)
	}
	closeables.AddWithError(otelShutdown)

	log.Ctx(ctx).Info().Fields(c.FlatDebugMap()).Msg("configuration")

	return &completedServerConfig{
		ds:                 ds,
		gRPCServer:         grpcServer,
		dispatchGRPCServer: dispatchGrpcServer,
		gatewayServer:      gatewayServer,
		metricsServer:      metricsServer,
		telemetryReporter:  reporter,
		healthManager:      healthManager,
		closeFunc:          closeables.Close,
	}, nil
}

func (c *Config) handleGrpcAuthn(ctx context.Context) error {
	if len(c.PresharedSecureKey) < 1 && c.GRPCAuthFunc == nil {
		return errors.New("a preshared key must be provided to authenticate API requests")
	}

	if c.GRPCAuthFunc == nil {
		log.Ctx(ctx).Trace().Int("preshared-keys-count", len(c.PresharedSecureKey)).Msg("using gRPC auth with preshared key(s)")
		for index, presharedKey := range c.PresharedSecureKey {
			if len(presharedKey) == 0 {
				return fmt.Errorf("preshared key #%d is empty", index+1)
			}

			log.Ctx(ctx).Trace().Int("preshared-key-"+strconv.Itoa(index+1)+"-length", len(presharedKey)).Msg("preshared key configured")
		}

		c.GRPCAuthFunc = auth.MustRequirePresharedKey(c.PresharedSecureKey)
	} else {
		log.Ctx(ctx).Trace().Msg("using preconfigured auth function")
	}
	return nil
}

func (c *Config) handleMismatchZedTokenOption() (consistency.MismatchingTokenOption, error) {
	switch c.MismatchZedTokenBehavior {
	case "":
		fallthrough

	case "full-consistency":
		return consistency.TreatMismatchingTokensAsFullConsistency, nil

	case "min-latency":
		return consistency.TreatMismatchingTokensAsMinLatency, nil

	case "error":
		return consistency.TreatMismatchingTokensAsError, nil

	default:
		var zero consistency.MismatchingTokenOption
		return zero, fmt.Errorf("unknown mismatched zedtoken behavior: %s", c.MismatchZedTokenBehavior)
	}
}

func (c *Config) BuildMemoryUsageProvider() memoryprotection.MemoryUsageProvider {
	if c.EnableMemoryProtectionMiddleware {
		if DefaultMemoryUsageProvider != nil {
			return DefaultMemoryUsageProvider
		}

		log.Warn().Msg("memory protection is enabled, but no default is configured; falling back to using noop provider")
		return memoryprotection.NewNoopMemoryUsageProvider()
	}
	return &memoryprotection.HarcodedMemoryUsageProvider{AcceptAllRequests: true}
}

func (c *Config) buildDispatchServer(memoryUsageProvider memoryprotection.MemoryUsageProvider, ds datastore.Datastore, cachingClusterDispatch dispatch.Dispatcher, otelOpts []otelgrpc.Option, dlOpts []datalayer.DataLayerOption) (util.RunnableGRPCServer, error) {
	if len(c.DispatchUnaryMiddleware) == 0 && len(c.DispatchStreamingMiddleware) == 0 {
		if c.GRPCAuthFunc == nil {
			c.DispatchUnaryMiddleware, c.DispatchStreamingMiddleware = DefaultDispatchMiddleware(log.Logger, auth.MustRequirePresharedKey(c.PresharedSecureKey), ds, c.DisableGRPCLatencyHistogram, memoryUsageProvider, dlOpts...)
		} else {
			c.DispatchUnaryMiddleware, c.DispatchStreamingMiddleware = DefaultDispatchMiddleware(log.Logger, c.GRPCAuthFunc, ds, c.DisableGRPCLatencyHistogram, memoryUsageProvider, dlOpts...)
		}
	}

	dispatchGrpcServer, err := c.DispatchServer.Complete(zerolog.InfoLevel,
		func(server *grpc.Server) {
			dispatchSvc.RegisterGrpcServices(server, cachingClusterDispatch)
		},
		grpc.ChainUnaryInterceptor(c.DispatchUnaryMiddleware...),
		grpc.ChainStreamInterceptor(c.DispatchStreamingMiddleware...),
		grpc.StatsHandler(otelgrpc.NewServerHandler(otelOpts...)),
	)
	if err != nil {
		return nil, fmt.Errorf("failed to create dispatch gRPC server: %w", err)
	}

	return dispatchGrpcServer, nil
}

func (c *Config) supportOldAndNewReadReplicaConnectionPoolFlags() {
	defaultReadConnPoolCfg := *datastorecfg.DefaultReadConnPool()
	if c.DatastoreConfig.ReadReplicaConnPool.MaxOpenConns == defaultReadConnPoolCfg.MaxOpenConns && c.DatastoreConfig.
		OldReadReplicaConnPool.MaxOpenConns != defaultReadConnPoolCfg.MaxOpenConns {
		c.DatastoreConfig.
			ReadReplicaConnPool.MaxOpenConns = c.DatastoreConfig.
			OldReadReplicaConnPool.MaxOpenConns
	}
	if c.DatastoreConfig.
		ReadReplicaConnPool.MinOpenConns == defaultReadConnPoolCfg.MinOpenConns && c.DatastoreConfig.
		OldReadReplicaConnPool.MinOpenConns != defaultReadConnPoolCfg.MinOpenConns {
		c.DatastoreConfig.
			ReadReplicaConnPool.MinOpenConns = c.DatastoreConfig.
			OldReadReplicaConnPool.MinOpenConns
	}
	if c.DatastoreConfig.
		ReadReplicaConnPool.MaxLifetime == defaultReadConnPoolCfg.MaxLifetime && c.DatastoreConfig.
		OldReadReplicaConnPool.MaxLifetime != defaultReadConnPoolCfg.MaxLifetime {
		c.DatastoreConfig.
			ReadReplicaConnPool.MaxLifetime = c.DatastoreConfig.
			OldReadReplicaConnPool.MaxLifetime
	}
	if c.DatastoreConfig.
		ReadReplicaConnPool.MaxLifetimeJitter == defaultReadConnPoolCfg.MaxLifetimeJitter && c.DatastoreConfig.
		OldReadReplicaConnPool.MaxLifetimeJitter != defaultReadConnPoolCfg.MaxLifetimeJitter {
		c.DatastoreConfig.
			ReadReplicaConnPool.MaxLifetimeJitter = c.DatastoreConfig.
			OldReadReplicaConnPool.MaxLifetimeJitter
	}
	if c.DatastoreConfig.
		ReadReplicaConnPool.MaxIdleTime == defaultReadConnPoolCfg.MaxIdleTime && c.DatastoreConfig.
		OldReadReplicaConnPool.MaxIdleTime != defaultReadConnPoolCfg.MaxIdleTime {
		c.DatastoreConfig.
			ReadReplicaConnPool.MaxIdleTime = c.DatastoreConfig.OldReadReplicaConnPool.MaxIdleTime
	}
	if c.DatastoreConfig.ReadReplicaConnPool.HealthCheckInterval == defaultReadConnPoolCfg.HealthCheckInterval &&
		c.DatastoreConfig.OldReadReplicaConnPool.HealthCheckInterval != defaultReadConnPoolCfg.HealthCheckInterval {
		c.DatastoreConfig.ReadReplicaConnPool.HealthCheckInterval = c.DatastoreConfig.OldReadReplicaConnPool.HealthCheckInterval
	}
	if c.DatastoreConfig.ReadReplicaConnPool.PingTimeout == defaultReadConnPoolCfg.PingTimeout &&
		c.DatastoreConfig.OldReadReplicaConnPool.PingTimeout != defaultReadConnPoolCfg.PingTimeout {
		c.DatastoreConfig.ReadReplicaConnPool.PingTimeout = c.DatastoreConfig.OldReadReplicaConnPool.PingTimeout
	}
}

func (c *Config) buildUnaryMiddleware(defaultMiddleware *MiddlewareChain[grpc.UnaryServerInterceptor]) ([]grpc.UnaryServerInterceptor, error) {
	chain := MiddlewareChain[grpc.UnaryServerInterceptor]{}
	if defaultMiddleware != nil {
		chain.chain = append(chain.chain, defaultMiddleware.chain...)
	}

	if err := chain.modify(c.UnaryMiddlewareModification...); err != nil {
		return nil, err
	}

	return chain.ToGRPCInterceptors(), nil
}

func (c *Config) buildStreamingMiddleware(defaultMiddleware *MiddlewareChain[grpc.StreamServerInterceptor]) ([]grpc.StreamServerInterceptor, error) {
	chain := MiddlewareChain[grpc.StreamServerInterceptor]{}
	if defaultMiddleware != nil {
		chain.chain = append(chain.chain, defaultMiddleware.chain...)
	}

	if err := chain.modify(c.StreamingMiddlewareModification...); err != nil {
		return nil, err
	}

	return chain.ToGRPCInterceptors(), nil
}

// initializeGateway Configures the gateway to serve HTTP
func (c *Config) initializeGateway(ctx context.Context) (util.RunnableHTTPServer, io.Closer, error) {
	if len(c.HTTPGatewayUpstreamAddr) == 0 {
		c.HTTPGatewayUpstreamAddr = c.GRPCServer.Address
	} else {
		log.Ctx(ctx).Info().Str("upstream", c.HTTPGatewayUpstreamAddr).Msg("Overriding REST gateway upstream")
	}

	if len(c.HTTPGatewayUpstreamTLSCertPath) == 0 {
		c.HTTPGatewayUpstreamTLSCertPath = c.GRPCServer.TLSCertPath
	} else {
		log.Ctx(ctx).Info().Str("cert-path", c.HTTPGatewayUpstreamTLSCertPath).Msg("Overriding REST gateway upstream TLS")
	}

	// If the requested network is a buffered one, then disable the HTTPGateway.
	if c.GRPCServer.Network == util.BufferedNetwork {
		c.HTTPGateway.HTTPEnabled = false
		gatewayServer, err := c.HTTPGateway.Complete(zerolog.InfoLevel, nil)
		if err != nil {
			return nil, nil, fmt.Errorf("failed skipping rest gateway initialization: %w", err)
		}
		return gatewayServer, nil, nil
	}

	var gatewayHandler http.Handler
	closeableGatewayHandler, err := gateway.NewHandler(ctx, c.HTTPGatewayUpstreamAddr, c.HTTPGatewayUpstreamTLSCertPath)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to initialize rest gateway: %w", err)
	}
	gatewayHandler = closeableGatewayHandler

	if c.HTTPGatewayCorsEnabled {
		log.Ctx(ctx).Info().Strs("origins", c.HTTPGatewayCorsAllowedOrigins).Msg("Setting REST gateway CORS policy")
		gatewayHandler = cors.New(cors.Options{
			AllowedOrigins:   c.HTTPGatewayCorsAllowedOrigins,
			AllowCredentials: true,
			AllowedHeaders:   []string{"Authorization", "Content-Type"},
			Debug:            log.Debug().Enabled(),
		}).Handler(gatewayHandler)
	}

	if c.HTTPGateway.HTTPEnabled {
		log.Ctx(ctx).Info().Str("upstream", c.HTTPGatewayUpstreamAddr).Msg("starting REST gateway")
	}

	gatewayServer, err := c.HTTPGateway.Complete(zerolog.InfoLevel, gatewayHandler)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to initialize rest gateway: %w", err)
	}
	return gatewayServer, closeableGatewayHandler, nil
}

// RunnableServer is a spicedb service set ready to run.
type RunnableServer interface {
	// Run takes the runnable server configuration and starts the server.
	Run(ctx context.Context) error
	// NewClient returns a grpc connection to this server.
	// It is up to the caller to close the connection when done using it.
	NewClient(opts ...grpc.DialOption) (*grpc.ClientConn, error)
}

// completedServerConfig holds the full configuration to run a spicedb server,
// but is assumed have already been validated via `Complete()` on Config.
// It offers limited options for mutation before Run() starts the services.
type completedServerConfig struct {
	ds datastore.Datastore

	gRPCServer         util.RunnableGRPCServer
	dispatchGRPCServer util.RunnableGRPCServer
	gatewayServer      util.RunnableHTTPServer
	metricsServer      util.RunnableHTTPServer
	telemetryReporter  telemetry.Reporter
	healthManager      health.Manager

	closeFunc func() error
}

var _ RunnableServer = &completedServerConfig{}

func (c *completedServerConfig) Run(ctx context.Context) error {
	log.Ctx(ctx).Info().Type("datastore", c.ds).Msg("running server")
	if startable := datastore.UnwrapAs[datastore.StartableDatastore](c.ds); startable != nil {
		log.Ctx(ctx).Info().Msg("Start-ing datastore")
		err := startable.Start(ctx)
		if err != nil {
			return err
		}
	}

	g := errgroup.Group{}

	stopOnCancelWithErr := func(stopFn func() error) func() error {
		return func() error {
			<-ctx.Done()
			return stopFn()
		}
	}

	g.Go(func() error {
		return c.healthManager.Checker(ctx)
	})
	g.Go(func() error {
		return c.gRPCServer.Run(ctx)
	})
	g.Go(func() error {
		return c.dispatchGRPCServer.Run(ctx)
	})
	g.Go(c.gatewayServer.ListenAndServe)
	g.Go(c.metricsServer.ListenAndServe)
	g.Go(func() error {
		return c.telemetryReporter(ctx)
	})

	g.Go(stopOnCancelWithErr(c.closeFunc))

	if err := g.Wait(); err != nil {
		log.Ctx(ctx).Warn().Err(err).Msg("error shutting down server")
		return err
	}

	return nil
}

func (c *completedServerConfig) NewClient(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	bufferedListener := c.gRPCServer.BufferedListener()
	if bufferedListener != nil {
		return grpchelpers.NewBufferedClient(bufferedListener, opts...)
	}
	return grpc.NewClient(c.gRPCServer.Address(), opts...)
}

// noCloseDatastore wraps a datastore so that Close is a no-op.
// It is used when the server is handed a datastore it did not create: the creator is responsible for closing them.
type noCloseDatastore struct {
	datastore.Datastore
}

// NoCloseProxy wraps the given datastore so that calls to Close are ignored. The
// underlying datastore remains the responsibility of whoever created it.
func NoCloseProxy(ds datastore.Datastore) datastore.Datastore {
	return &noCloseDatastore{Datastore: ds}
}

func (p *noCloseDatastore) Close() error { return nil }

func (p *noCloseDatastore) Unwrap() datastore.Datastore { return p.Datastore }
