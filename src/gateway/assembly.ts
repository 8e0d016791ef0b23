// The types that the steps of the assembly of a gateway share.
import type { Clock } from '../kernel/clock.ts';
import type { Closers } from '../kernel/closers.ts';
import type { Database, DatabaseLimits } from '../kernel/data/database.ts';
import type { Log } from '../kernel/log.ts';
import type { RecentLines } from '../kernel/recent-lines.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
import type { CloseOptions } from '../kernel/http/drain.ts';
import type { ListenAddress } from '../kernel/http/server.ts';
import type { Vault } from '../kernel/secrets/vault.ts';
import type { IssuedToken } from './accounts/index.ts';
import type { CredentialsResult, AdminAttemptLimits, Machines } from './admin/index.ts';
import type { BreakerChannel, ProviderCheck } from './ai/index.ts';
import type { Deployment } from './cities/index.ts';
import type { GatewayConfig } from './config.ts';
import type { LedgerTimes } from './credits/index.ts';
import type { RewrapResult } from './env/index.ts';
import type { LocalEditionLinks } from './front-page.ts';
import type { Identity } from './identity.ts';
import type { Service } from './service.ts';
import type { Project, ProjectService, ServiceDefinition } from './services/index.ts';

/** The options of `createGateway`, from the process that runs it. */
export interface CreateGatewayOptions {
  /** Environment variables for declared keys, such as a provider's API key. */
  env: Readonly<Record<string, string | undefined>>;
  log: Log;
  redactor: Redactor;
  clock: Clock;
  /**
   * For tests: an open database, which the gateway does not close. Without it, the gateway opens and closes
   * the database of its settings.
   */
  database?: Database;
  /** The database of the settings, already being opened. The gateway closes it, even if its start fails. */
  openingDatabase?: Promise<Database> | undefined;
  /** Overrides of the default database timeouts, for slow machines. */
  databaseLimits?: Partial<DatabaseLimits>;
  /** The project of the declaration; its services are served beside the gateway's own. */
  project?: Project | undefined;
  /** Services of an embedding program, beside those of a project. */
  services?: readonly ServiceDefinition[];
  /** Called with a short description of each startup step. */
  progress?: (step: string) => void;
  /** The links of `/` in the local edition; called at each request. */
  localEdition?: () => LocalEditionLinks;
  /** The latest lines of the log, for `townhall logs`. */
  recentLines?: Pick<RecentLines, 'read'>;
  /** Builds the missing folder `build/docs` when one of its pages is first requested. */
  buildPortal?: (() => Promise<void>) | undefined;
  /** Version of the installation, for traces. */
  version?: string;
  /** Overrides of the ledger's intervals, for tests of crash recovery. */
  ledger?: Partial<LedgerTimes>;
  /** Overrides of the limits on password attempts of administrators, for measurements. */
  attemptLimits?: Partial<AdminAttemptLimits>;
  /** False in a worker: its primary process serves the metrics of all workers on one port. */
  servesMetrics?: boolean;
  /** Shares the circuit breakers of providers with the other workers. */
  breakerChannel?: BreakerChannel;
  /** Validates every response against the contract. Meant for tests: it costs time per response. */
  validateResponses?: boolean;
}

/** A gateway whose database is open and migrated. */
export interface Gateway {
  database: Database;
  /**
   * Listens at the configured address, or at `address`. May be called again for another address. Rejects
   * when the address is in use.
   */
  listen(address?: ListenAddress): Promise<{ url: string; port: number }>;
  /** Refuses new requests, waits for running ones, then closes everything that `createGateway` opened. */
  close(options?: Pick<CloseOptions, 'noticeMs' | 'lingerMs'>): Promise<void>;
  /** Records a deployment, as `POST /v1/cities/upsert` does. */
  recordCity(deployment: Omit<Deployment, 'deployedAt'>): Promise<void>;
  /** The services of the project with the keys that they declare. */
  projectServices: readonly Pick<Service, 'name' | 'title' | 'env'>[];
  hasAdministrator(): Promise<boolean>;
  /** Whether callers on this machine can log in without credentials now. */
  hasLocalLogin(): boolean;
  setupAdministrator(adminId: string, password: string): Promise<CredentialsResult>;
  resetAdministrator(adminId: string, password: string): Promise<CredentialsResult>;
  /** The credentials of products' backends. */
  machines: Machines;
  /** Encrypts every stored value with the primary master key. */
  rewrapEnv(): Promise<RewrapResult>;
  /** Sends one test request to each configured model provider. */
  checkProviders(): Promise<ProviderCheck[]>;
  /**
   * Polls payment providers about pending payments now; resolves with the number of payments that changed.
   */
  pollPayments(): Promise<number>;
  /** A token for the local user of the local edition. */
  issueLocalToken(): Promise<IssuedToken>;
  /** The metrics in the Prometheus format; empty when metrics are off. */
  readMetrics(): Promise<string>;
  /** The identity of a bearer token, or null. Throws 403 when its Bureau is not active. */
  identify(bearer: string): Promise<Identity | null>;
}

/** The base of every step of the assembly. */
export interface Assembly {
  config: GatewayConfig;
  options: CreateGatewayOptions;
  database: Database;
  /** The database of the project's actions: `database` itself, or separate connections to it. */
  projectDatabase: Database;
  projectServices: ReadonlyMap<string, ProjectService>;
  vault: Vault;
  /** Whether the database is embedded: one process on one machine, without replicas. */
  isLocalEdition: boolean;
  lifecycle: {
    phase: 'created' | 'serving' | 'draining';
    /** The address of the last `listen`. */
    url: string | null;
  };
  /** All services in the order of the directory; filled during the assembly, read at each call. */
  services: Pick<Service, 'name' | 'title' | 'env'>[];
  /** Registers the part's `close` and returns the part. Parts are closed in reverse order of construction. */
  defer<Part extends { close?(): unknown }>(part: Part): Part;
  closers: Closers;
  /** Access to the network. Only composition roots use the global `fetch`. */
  fetch: typeof globalThis.fetch;
}
