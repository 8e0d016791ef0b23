// Cities: the records of deployments, and which of them this server belongs to. A record only documents a
// deployment; the command line deploys.
import type { City as CityBody, UpsertCityRequest } from '../../contract/gateway/types.gen.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { invalidMember, Problem } from '../../kernel/problem.ts';
import type { AuditEntry } from '../audit/index.ts';
import { originOf, systemOrigin, type Origin } from '../identity.ts';
import type { Service } from '../service.ts';
import type { CitiesStore, City, Deployment } from './store.ts';

interface CitiesOptions {
  store: CitiesStore;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  /** The configured address of this server, if any. */
  baseUrl(): string | undefined;
}

export interface Cities extends Service<'cities'> {
  /** Records a deployment that has just gone live. */
  record(deployment: Omit<Deployment, 'deployedAt'>): Promise<void>;
}

export function cities(options: CitiesOptions): Cities {
  const { store, baseUrl } = options;
  return {
    async record(deployment) {
      await upsert(
        options,
        { ...deployment, baseUrl: requireBaseUrl(deployment.baseUrl), deployedAt: null },
        { ...systemOrigin, action: 'cities.upsertCity' },
      );
    },
    name: 'cities',
    title: 'Cities',
    env: [],
    handlers: {
      'cities.listCities': async () => ({
        status: 200,
        body: { items: (await store.list()).map(serializeCity) },
      }),
      'cities.upsertCity': async (call) => {
        const change = { ...originOf(call), action: call.operationId };
        const city = await upsert(options, readDeployment(call.body), change);
        return { status: 200, body: serializeCity(city) };
      },
      'cities.removeCity': async (call) => {
        const cityId = call.body.city_id;
        const change = { ...originOf(call), action: call.operationId };
        return { status: 200, body: { removed: await remove(options, cityId, change) } };
      },
      'cities.getCurrentCity': async () => {
        const city = await store.findCurrent(baseUrl()?.replace(/\/+$/, '') ?? null);
        if (!city)
          throw new Problem('not_found', 'city_not_found', 'No deployment is recorded on this server.');
        return {
          status: 200,
          body: { city_id: city.cityId, name: city.name, version: city.version, base_url: city.baseUrl },
        };
      },
    },
  };
}

/** The author and the name of a change, for the audit log. */
type Change = Origin & { action: string };

function upsert({ store, audit }: CitiesOptions, deployment: Deployment, change: Change): Promise<City> {
  return store.tx(async (tx) => {
    const storedCity = await store.upsert(tx, deployment);
    const { city_id, ...diff } = serializeCity(storedCity);
    await audit.record(tx, {
      ...change,
      target: { kind: 'city', id: city_id },
      outcome: 'ok',
      diff,
    });
    return storedCity;
  });
}

function remove({ store, audit }: CitiesOptions, cityId: string, change: Change): Promise<boolean> {
  return store.tx(async (tx) => {
    if (!(await store.remove(tx, cityId))) return false;
    await audit.record(tx, { ...change, target: { kind: 'city', id: cityId }, outcome: 'ok' });
    return true;
  });
}

function readDeployment(body: UpsertCityRequest): Deployment {
  return {
    cityId: body.city_id,
    name: body.name,
    baseUrl: requireBaseUrl(body.base_url),
    target: body.target,
    version: body.version,
    status: body.status ?? 'live',
    deployedAt: body.deployed_at ?? null,
  };
}

/** The address without trailing slashes, otherwise as it was given. Throws 400 for an invalid address. */
function requireBaseUrl(text: string): string {
  const url = URL.canParse(text) && !/[\s\p{Cc}\\]/u.test(text) ? new URL(text) : undefined;
  const isWebAddress =
    url !== undefined && /^https?:$/.test(url.protocol) && url.username === '' && url.password === '';
  if (!isWebAddress)
    throw invalidMember(
      'base_url',
      'must be an http or https address without credentials, spaces and backslashes',
    );
  return text.replace(/\/+$/, '');
}

function serializeCity(city: City): CityBody {
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
