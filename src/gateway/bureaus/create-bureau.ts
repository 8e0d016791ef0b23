// bureaus.createBureau: stores the Bureau, its audit entry and the answer for retries with the same
// idempotency key in one transaction.
import type { Bureau as BureauBody } from '../../contract/gateway/types.gen.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import type { AuditEntry } from '../audit/index.ts';
import { originOf, type Identity } from '../identity.ts';
import { serializeBureau } from './serialize.ts';
import { hostOf, requireServerUrl } from './server-url.ts';
import { readSettings, type SettingsBody } from './settings.ts';
import type { BureausStore, BureauSettings } from './store.ts';

interface CreateCall {
  operationId: string;
  body: SettingsBody & { server_url: string; bureau_id?: string };
  identity: Identity;
  remoteAddress: string;
  requestId: string;
  remember(tx: Tx, reply: { status: number; body?: unknown }): Promise<void>;
}

export function createCreateBureau({
  store,
  audit,
  changes,
}: {
  store: Pick<BureausStore, 'tx' | 'insert'>;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: { bump(tx: Tx): Promise<void> };
}) {
  return async (call: CreateCall): Promise<{ status: 201; body: BureauBody }> => {
    const serverUrl = requireServerUrl(call.body.server_url);
    const bureauId = call.body.bureau_id ?? id('bur');
    const settings: BureauSettings = {
      name: hostOf(serverUrl),
      serverUrl,
      redirectOrigins: [],
      redirectUris: [],
      color: null,
      models: null,
      limits: null,
      startingCredits: null,
      metadata: {},
      ...readSettings(call.body),
    };
    return store.tx(async (tx) => {
      const bureau = await store.insert(tx, bureauId, settings);
      if (!bureau)
        throw new Problem('conflict', 'conflict', 'A Bureau with this id already exists.', {
          param: 'bureau_id',
        });
      const reply = { status: 201 as const, body: serializeBureau(bureau) };
      await audit.record(tx, {
        ...originOf(call),
        action: call.operationId,
        target: { kind: 'bureau', id: bureauId },
        outcome: 'ok',
        diff: { name: bureau.name, server_url: serverUrl },
      });
      await call.remember(tx, reply);
      await changes.bump(tx);
      return reply;
    });
  };
}
