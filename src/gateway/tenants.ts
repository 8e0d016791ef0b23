// Constructs the services of tenants: Bureaus, their users, administrators, and the credits of users.
import { scopeOperations } from '../contract/gateway/operations.gen.ts';
import { parseToken } from '../kernel/secrets/secret.ts';
import { createConcurrencyLimit, defaultConcurrency } from '../kernel/secrets/concurrency-limit.ts';
import { accounts, accountsStores } from './accounts/index.ts';
import { admin, adminStore } from './admin/index.ts';
import { alarmStore, alarmWindowMs, defaultAlarmsToStop } from './ai/index.ts';
import { bureaus, bureausStore } from './bureaus/index.ts';
import { cities, citiesStore } from './cities/index.ts';
import { journalFolder } from './config.ts';
import {
  credits,
  creditsStore,
  journalDirectory,
  settlementJournal,
  sqlAllotmentStore,
} from './credits/index.ts';
import type { Identity } from './identity.ts';
import { observeLedger } from './telemetry/index.ts';
import { usage, usageStore } from './usage/index.ts';
import type { Assembly } from './assembly.ts';
import type { Infrastructure } from './infrastructure.ts';

export type Tenants = ReturnType<typeof openTenants>;

export function openTenants(assembly: Assembly, infrastructure: Infrastructure) {
  const { options, database } = assembly;
  const { upstream, changes, audit: auditLog, cityBaseUrl } = infrastructure;
  const { log } = options;
  const bureauService = bureaus({
    store: bureausStore(database),
    audit: auditLog,
    changes,
    findTokenOwner,
    log,
  });
  const cityService = cities({ store: citiesStore(database), audit: auditLog, baseUrl: cityBaseUrl });
  const stores = accountsStores(database, bureauService);
  const users = stores.accounts;
  const alarms = alarmStore(database, changes);
  const administrators = adminStore(database);
  const concurrencyLimit = createConcurrencyLimit(defaultConcurrency);
  const { creditsService, usageService } = openCredits(assembly, infrastructure, users);
  const accountService = openAccounts(assembly, infrastructure, {
    stores,
    bureaus: bureauService,
    credits: creditsService,
    alarms,
    administrators,
    concurrencyLimit,
  });
  // Return the credits that are set aside for revoked tokens, blocked users and paused Bureaus.
  changes.onChange(() => {
    creditsService
      .closeEndedTokens()
      .catch((error: unknown) =>
        log.warn({ err: error }, 'the credits set aside for ended tokens could not be returned yet'),
      );
  });
  const adminService = openAdmin(assembly, infrastructure, {
    administrators,
    tokens: users,
    bureaus: bureauService,
    concurrencyLimit,
  });

  async function findTokenOwner(token: string) {
    const identity = await accountService.identify(token);
    const expiresAt = identity && (await accountService.findTokenExpiry(identity.tokenId));
    return identity && expiresAt ? { ...identity, expiresAt } : null;
  }

  return {
    bureaus: bureauService,
    cities: cityService,
    users,
    alarms,
    credits: creditsService,
    ledger: observeLedger(creditsService.ledger, upstream.note),
    usage: usageService,
    accounts: accountService,
    admin: adminService,
    async identify(bearer: string): Promise<Identity | null> {
      // The accounts service checks the format of a user token itself, when the token is not in its cache.
      if (bearer.startsWith('th_usr_')) return accountService.identify(bearer);
      return parseToken(bearer) === 'adm' ? adminService.identify(bearer) : null;
    },
  };
}

/** The accounts of users: their logins, tokens and API keys. */
function openAccounts(
  { options, fetch, defer }: Assembly,
  { changes, audit: auditLog, env, mail: mailer, hasLocalLogin, publicUrl }: Infrastructure,
  parts: {
    stores: ReturnType<typeof accountsStores>;
    bureaus: ReturnType<typeof bureaus>;
    credits: ReturnType<typeof credits>;
    alarms: ReturnType<typeof alarmStore>;
    administrators: ReturnType<typeof adminStore>;
    concurrencyLimit: ReturnType<typeof createConcurrencyLimit>;
  },
) {
  const { stores, alarms, administrators, concurrencyLimit } = parts;
  return defer(
    accounts({
      concurrencyLimit,
      stores,
      bureaus: parts.bureaus,
      log: options.log,
      clock: options.clock,
      fetch,
      env: env.reader,
      mail: mailer,
      audit: auditLog,
      changes,
      credits: parts.credits,
      stops: {
        endsAt: (userIds) =>
          alarms.stopEnds(userIds, { windowMs: alarmWindowMs, alarms: defaultAlarmsToStop }),
        lift: (tx, userId) => alarms.remove(tx, userId),
      },
      machines: { lockLive: (tx, credentialId) => administrators.lockLiveMachine(tx, credentialId) },
      localLogin: hasLocalLogin,
      baseUrl: publicUrl,
    }),
  );
}

/** Administrators and the credentials of products' backends. */
function openAdmin(
  { options, defer }: Assembly,
  { changes, audit: auditLog }: Infrastructure,
  parts: {
    administrators: ReturnType<typeof adminStore>;
    tokens: ReturnType<typeof accountsStores>['accounts'];
    bureaus: ReturnType<typeof bureaus>;
    concurrencyLimit: ReturnType<typeof createConcurrencyLimit>;
  },
) {
  return defer(
    admin({
      scopeOperations,
      store: parts.administrators,
      tokens: parts.tokens,
      concurrencyLimit: parts.concurrencyLimit,
      attemptLimits: options.attemptLimits ?? {},
      audit: auditLog,
      changes,
      bureaus: parts.bureaus,
      log: options.log,
    }),
  );
}

/** The ledger of credits, and the usage that it charges. */
function openCredits(
  { config, options, database, isLocalEdition, defer }: Assembly,
  { telemetry, audit: auditLog }: Infrastructure,
  users: ReturnType<typeof accountsStores>['accounts'],
) {
  const { log, clock } = options;
  const journalPath = journalFolder(config);
  const usageRecords = usageStore(database);
  const creditsService = defer(
    credits({
      store: creditsStore(database),
      allotmentStore: sqlAllotmentStore(database),
      journal: settlementJournal(journalPath),
      journals: config.journal === 'on' ? journalDirectory({ path: journalPath, log, clock }) : null,
      users,
      audit: auditLog,
      usage: usageRecords,
      log,
      clock,
      metrics: telemetry.metrics,
      isAlone: isLocalEdition,
      startingCredits: BigInt(config.startingCredits ?? (isLocalEdition ? 1_000_000 : 0)),
      retentionDays: config.usageDays,
      times: options.ledger ?? {},
    }),
  );
  const usageService = defer(
    usage({
      store: usageRecords,
      log,
      clock,
      retentionDays: config.usageDays,
      reportCharges: () => creditsService.reportEverywhere(),
    }),
  );
  return { creditsService, usageService };
}
