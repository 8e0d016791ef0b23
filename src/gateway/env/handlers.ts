// The handlers of the environment. A secret is returned in full only to an explicit
// request, which is audited.
import type { EnvVariable } from '../../contract/gateway/types.gen.ts';
import { Problem } from '../../kernel/problem.ts';
import type { AuditEntry } from '../audit/index.ts';
import { originOf } from '../identity.ts';
import type { Service } from '../service.ts';
import type { Declaration } from './declarations.ts';
import { parseVariables } from './import.ts';
import type { EnvSnapshot, SnapshotEntry } from './snapshot.ts';
import { maskValue, validateKey, validateVariable, type KeyRules, type VariableError } from './variable.ts';
import { envAuditEntry, type EnvWriter } from './writer.ts';

interface HandlerOptions {
  snapshot: Pick<EnvSnapshot, 'get' | 'entry' | 'entries'>;
  writer: EnvWriter;
  recordReveal: (entry: AuditEntry) => Promise<void>;
  declarations: () => ReadonlyMap<string, Declaration>;
  isSecret: (key: string) => boolean;
  keyRules: KeyRules;
}

export function envHandlers(options: HandlerOptions): Service<'env'>['handlers'] {
  const { snapshot, writer, declarations, isSecret, keyRules } = options;
  return {
    'env.listVariables': async (call) => {
      const shouldReveal = call.query.reveal === true;
      const items = listVariables(options, shouldReveal);
      if (shouldReveal) {
        const keys = items.filter(({ secret, masked }) => secret && !masked).map(({ key }) => key);
        await options.recordReveal(envAuditEntry(originOf(call), 'env.revealVariables', null, { keys }));
      }
      return { status: 200, body: { items } };
    },
    'env.upsertVariable': async (call) => {
      const { key, value } = call.body;
      const error = validateVariable(key, value, keyRules);
      if (error !== null) throw invalidVariable(error);
      const updatedAt = await writer.write(new Map([[key, value]]), (changes) =>
        envAuditEntry(originOf(call), call.operationId, key, changes[key]),
      );
      return { status: 200, body: serializeEntry({ key, value, updatedAt }, isSecret(key), false) };
    },
    'env.removeVariable': async (call) => {
      const { key } = call.body;
      const error = validateKey(key, keyRules);
      if (error !== null) throw invalidVariable(error);
      const isRemoved = await writer.remove(key, (change) =>
        envAuditEntry(originOf(call), call.operationId, key, change),
      );
      return { status: 200, body: { removed: isRemoved } };
    },
    'env.importVariables': async (call) => {
      const variables = parseVariables(call.body.content, keyRules);
      const keys = [...variables.keys()];
      if (keys.length > 0)
        await writer.write(variables, (changes) =>
          envAuditEntry(originOf(call), call.operationId, null, changes),
        );
      return { status: 200, body: { imported: keys.length, keys } };
    },
    'env.getCatalog': async () => ({
      status: 200,
      body: {
        items: [...declarations().values()].map(({ declaredBy, ...declaration }) => {
          const value = snapshot.get(declaration.key);
          const isConfigured = value !== undefined && value !== '';
          const isStored = snapshot.entry(declaration.key) !== undefined;
          const source = isStored ? ('database' as const) : ('process' as const);
          return {
            ...declaration,
            configured: isConfigured,
            source: isConfigured ? source : null,
            declared_by: declaredBy,
          };
        }),
      },
    }),
  };
}

/** The stored variables, and declared variables that only the process environment has, sorted by key. */
function listVariables(
  { snapshot, declarations, isSecret, keyRules }: HandlerOptions,
  reveal: boolean,
): EnvVariable[] {
  const storedVariables = snapshot
    .entries()
    .map((entry) => serializeEntry(entry, isSecret(entry.key), reveal));
  const fromProcess = [...declarations().values()].flatMap(({ key, secret }): EnvVariable[] => {
    const value = snapshot.entry(key) === undefined ? snapshot.get(key) : undefined;
    if (value === undefined || keyRules.isReserved(key)) return [];
    const isMasked = secret && !reveal;
    return [
      {
        key,
        value: isMasked ? maskValue(value) : value,
        secret,
        masked: isMasked,
        readable: true,
        updated_at: null,
        source: 'process',
      },
    ];
  });
  return [...storedVariables, ...fromProcess].sort((a, b) => (a.key < b.key ? -1 : 1));
}

function serializeEntry(
  { key, value, updatedAt }: SnapshotEntry,
  secret: boolean,
  reveal: boolean,
): EnvVariable {
  const isMasked = value === null || (secret && !reveal);
  return {
    key,
    value: isMasked ? maskValue(value ?? '') : value,
    secret,
    masked: isMasked,
    readable: value !== null,
    updated_at: updatedAt.toISOString(),
    source: 'database',
  };
}

function invalidVariable({ code, member, message }: VariableError): Problem {
  return new Problem('bad_request', code, `The ${member} ${message}.`, {
    param: member,
    details: [{ path: member, message }],
  });
}
