// What services and models say they read from the environment, put together by key: who wants it, whether
// anyone needs it, and whether it is a secret.
import type { EnvDeclarer } from '../../contract/gateway/types.gen.ts';
import type { Requirement } from '../service.ts';

/** One service and what it declares. */
export interface Declarer {
  id: string;
  env: readonly Requirement[];
}

export interface Declaration {
  key: string;
  description: string;
  required: boolean;
  secret: boolean;
  declaredBy: EnvDeclarer[];
}

/** In the order of the keys. A key is a secret unless all who declare it say otherwise, and needed when one of them needs it. */
export function declarationsOf(declarers: readonly Declarer[]): Map<string, Declaration> {
  const found = new Map<string, Declaration>();
  for (const { id, env } of declarers) {
    for (const { key, description, required, secret = true, models = [] } of env) {
      const before = found.get(key);
      const declaredBy: EnvDeclarer[] = [
        { kind: 'service', id },
        ...models.map((model) => ({ kind: 'model' as const, id: model })),
      ];
      found.set(key, {
        key,
        description: before?.description ?? description,
        required: required || before?.required === true,
        secret: secret || before?.secret === true,
        declaredBy: [...(before?.declaredBy ?? []), ...declaredBy],
      });
    }
  }
  return new Map([...found].sort(([a], [b]) => (a < b ? -1 : 1)));
}
