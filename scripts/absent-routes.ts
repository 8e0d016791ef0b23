// Lists routes of the specification that the contract does not have yet. Absent routes alone are not a
// failure (unless --strict); a specified route with another method always is.
//
//   node scripts/absent-routes.ts [--strict]

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseCommandLine } from './command-line.ts';
import { type Document, operationsOf } from './generate/document.ts';

type DocumentName = 'gateway' | 'agent' | 'agent-classic';

/** A route of the specification and the documents that must have it. */
export interface SpecifiedRoute {
  method: string;
  path: string;
  documents: readonly DocumentName[];
}

const gateway: readonly DocumentName[] = ['gateway'];
const bothVariants: readonly DocumentName[] = ['agent', 'agent-classic'];

/** The specification's section "Endpoints", both parts, in its order. */
export const specifiedRoutes: readonly SpecifiedRoute[] = [
  ...toRoutes(gateway, [
    'GET /v1/ai/models',
    'POST /v1/ai/text',
    'POST /v1/ai/stream',
    'POST /v1/ai/image/create',
    'POST /v1/ai/image/result',
    'POST /v1/ai/video',
    'POST /v1/ai/tts',
    'POST /v1/ai/asr',
    'POST /v1/ai/chat/completions',
    'POST /v1/accounts/login/start',
    'POST /v1/accounts/login/continue',
    'GET /v1/accounts/login/result',
    'GET /v1/accounts/me',
    'GET /v1/accounts/oauth/callback',
    'GET /v1/services',
    'POST /v1/{service}/{action}',
    'GET /health',
    'GET /v1/bureaus/list',
    'POST /v1/bureaus/create',
    'POST /v1/bureaus/pause',
    'POST /v1/bureaus/activate',
    'POST /v1/bureaus/archive',
    'POST /v1/bureaus/server/update',
    'GET /v1/bureaus/current',
    'POST /v1/accounts/tokens/issue',
    'GET /v1/env/list',
    'POST /v1/env/upsert',
    'POST /v1/env/remove',
    'POST /v1/env/import',
    'POST /v1/admin/login',
  ]),
  ...toRoutes(bothVariants, ['GET /health', 'GET /api/status', 'POST /api/execute', 'GET /api/plugins/list']),
  // The older variant lists its registered plugins at /api/plugins/list and has no catalog.
  ...toRoutes(['agent'], ['GET /api/plugins/catalog']),
  ...toRoutes(bothVariants, [
    'POST /api/plugins/availability',
    'POST /api/plugins/action',
    'GET /api/ui/plugins',
    'POST /api/dashboard/sessions/{sessionId}/execute',
    'GET /api/services/list',
    'POST /api/services/control',
    'POST /api/services/command',
    'POST /service/{serviceName}/{actionName}',
    'GET /api/sdk/sessions',
    'POST /api/sdk/sessions',
    'POST /api/sdk/sessions/{sessionId}/prompt',
    'GET /api/sdk/sessions/{sessionId}/events',
    'GET /api/sdk/sessions/{sessionId}/messages',
    'GET /api/sdk/sessions/{sessionId}/system',
    'POST /api/sdk/sessions/{sessionId}/fork',
  ]),
];

export interface Comparison {
  present: string[];
  absent: string[];
  /** Present at its path, but only with methods that the specification does not list. */
  wrongMethod: string[];
}

/** Compares the documents with the routes; names of path parameters do not matter. */
export function compareRoutes(
  documents: Readonly<Record<string, Document>>,
  routes: readonly SpecifiedRoute[] = specifiedRoutes,
): Comparison {
  const comparison: Comparison = { present: [], absent: [], wrongMethod: [] };
  for (const route of routes) {
    for (const name of route.documents) {
      const label = `${name}: ${route.method} ${route.path}`;
      const servedMethods = methodsAt(documents[name], route.path);
      const plannedMethods = routes
        .filter(
          (candidate) =>
            candidate.documents.includes(name) && shapeOf(candidate.path) === shapeOf(route.path),
        )
        .map(({ method }) => method);
      if (servedMethods.includes(route.method)) comparison.present.push(label);
      else if (servedMethods.some((method) => !plannedMethods.includes(method)))
        comparison.wrongMethod.push(`${label} (has ${servedMethods.join(', ')})`);
      else comparison.absent.push(label);
    }
  }
  return comparison;
}

function methodsAt(document: Document | undefined, specifiedPath: string): string[] {
  return operationsOf(document ?? {})
    .filter((operation) => shapeOf(operation.path) === shapeOf(specifiedPath))
    .map(({ method }) => method.toUpperCase());
}

function shapeOf(template: string): string {
  return template.replaceAll(/\{[^}]+\}/g, '{}');
}

function toRoutes(documents: readonly DocumentName[], specLines: readonly string[]): SpecifiedRoute[] {
  return specLines.map((line) => {
    const [method = '', template = ''] = line.split(' ');
    return { method, path: template, documents };
  });
}

function main(isStrict: boolean): number {
  const contract = path.join(import.meta.dirname, '../src/contract');
  const documents: Record<string, Document> = {};
  for (const name of [...gateway, ...bothVariants]) {
    const file = path.join(contract, name, 'bundle.json');
    if (!existsSync(file)) {
      console.error('absent-routes: there are no bundles; run "npm run generate" first');
      return 1;
    }
    documents[name] = JSON.parse(readFileSync(file, 'utf8')) as Document;
  }
  const { present: presentRoutes, absent: absentRoutes, wrongMethod } = compareRoutes(documents);
  for (const route of absentRoutes) console.log(`absent        ${route}`);
  for (const route of wrongMethod) console.error(`wrong method  ${route}`);
  console.log(
    `absent-routes: ${presentRoutes.length} of the specification's routes are in the contract, ` +
      `${absentRoutes.length} are absent, ${wrongMethod.length} have a wrong method`,
  );
  return wrongMethod.length > 0 || (isStrict && absentRoutes.length > 0) ? 1 : 0;
}

if (import.meta.main) {
  const { values } = parseCommandLine(import.meta.filename, {
    options: { strict: { type: 'boolean', default: false } },
  });
  process.exitCode = main(values.strict);
}
