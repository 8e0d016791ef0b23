// Merges the environment keys that services and models declare into one declaration per key.
import type { EnvDeclarer } from '../../contract/gateway/types.gen.ts';
import type { Requirement } from '../service.ts';

/** A service and the variables it declares. */
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

/**
 * Merges the declarations, sorted by key. A key is required or secret when at least one declarer
 * declares it so; secret is the default.
 */
export function declarationsOf(declarers: readonly Declarer[]): Map<string, Declaration> {
  const declarations = new Map<string, Declaration>();
  for (const { id, env } of declarers) {
    for (const { key, description, required, secret = true, models = [] } of env) {
      const existing = declarations.get(key);
      const declaredBy: EnvDeclarer[] = [
        { kind: 'service', id },
        ...models.map((model) => ({ kind: 'model' as const, id: model })),
      ];
      declarations.set(key, {
        key,
        description: existing?.description ?? description,
        required: required || existing?.required === true,
        secret: secret || existing?.secret === true,
        declaredBy: [...(existing?.declaredBy ?? []), ...declaredBy],
      });
    }
  }
  return new Map([...declarations].sort(([a], [b]) => (a < b ? -1 : 1)));
}
