// The cities: which deployments are on record and which of them serves here. A record says what is so and
// does nothing; deploying is the command line's.
import type { City as WireCity } from '../../contract/gateway/types.gen.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { Problem } from '../../kernel/problem.ts';
import type { AuditEntry } from '../audit/index.ts';
import { originOf, systemOrigin, type Origin } from '../identity.ts';
import type { Service } from '../service.ts';
import type { CitiesStore, City, Deployment } from './store.ts';

interface CitiesOptions {
  store: CitiesStore;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  /** The configured address of this server, where there is one. */
  baseUrl(): string | undefined;
}

export interface Cities extends Service<'cities'> {
  /** Puts a deployment on record that went live now. */
  record(deployment: Omit<Deployment, 'deployedAt'>): Promise<void>;
}

export function cities({ store, audit, baseUrl }: CitiesOptions): Cities {
  function upsert(
    deployment: Deployment,
    { origin, action }: { origin: Origin; action: string },
  ): Promise<City> {
    return store.tx(async (tx) => {
      const stored = await store.upsert(tx, deployment);
      const { city_id, ...diff } = wireCity(stored);
      await audit.record(tx, {
        ...origin,
        action,
        target: { kind: 'city', id: city_id },
        outcome: 'ok',
        diff,
      });
      return stored;
    });
  }

  return {
    async record(deployment) {
      await upsert(
        { ...deployment, baseUrl: requireBaseUrl(deployment.baseUrl), deployedAt: null },
        { origin: systemOrigin, action: 'cities.upsertCity' },
      );
    },
    name: 'cities',
    title: 'Cities',
    env: [],
    handlers: {
      'cities.listCities': async () => ({ status: 200, body: { items: (await store.list()).map(wireCity) } }),
      'cities.upsertCity': async (call) => {
        const { body } = call;
        const deployment = {
          cityId: body.city_id,
          name: body.name,
          baseUrl: requireBaseUrl(body.base_url),
          target: body.target,
          version: body.version,
          status: body.status ?? 'live',
          deployedAt: body.deployed_at ?? null,
        };
        const city = await upsert(deployment, { origin: originOf(call), action: call.operationId });
        return { status: 200, body: wireCity(city) };
      },
      'cities.removeCity': async (call) => {
        const cityId = call.body.city_id;
        const removed = await store.tx(async (tx) => {
          if (!(await store.remove(tx, cityId))) return false;
          await audit.record(tx, {
            ...originOf(call),
            action: call.operationId,
            target: { kind: 'city', id: cityId },
            outcome: 'ok',
          });
          return true;
        });
        return { status: 200, body: { removed } };
      },
      'cities.getCurrentCity': async () => {
        const city = await store.findCurrent(baseUrl()?.replace(/\/+$/, '') ?? null);
        if (!city) throw new Problem('not_found', 'city_not_found', 'No deployment is on record here.');
        return {
          status: 200,
          body: { city_id: city.cityId, name: city.name, version: city.version, base_url: city.baseUrl },
        };
      },
    },
  };
}

/** Without a slash at its end, so that one address has one spelling. */
function requireBaseUrl(given: string): string {
  const url = URL.canParse(given) && !/[\s\p{Cc}\\]/u.test(given) ? new URL(given) : undefined;
  const isFit =
    url !== undefined && /^https?:$/.test(url.protocol) && url.username === '' && url.password === '';
  if (!isFit || /[?#]/.test(given)) {
    const message = 'must be an http or https address without credentials, query and fragment';
    throw new Problem('bad_request', 'invalid_request', `\`base_url\` ${message}.`, {
      param: 'base_url',
      details: [{ path: 'base_url', message }],
    });
  }
  return given.replace(/\/+$/, '');
}

function wireCity(city: City): WireCity {
  return {
    city_id: city.cityId,
    name: city.name,
    base_url: city.baseUrl,
    target: city.target,
    version: city.version,
    status: city.status,
    deployed_at: city.deployedAt.toISOString(),
    created_at: city.createdAt.toISOString(),
  };
}
