// The project's services, checked and made ready before the server starts: whatever is wrong with one is said
// then, with the file and the member, and never met by a caller.
import {
  compileQuery,
  compileSchema,
  type QueryCheck,
  type SchemaCheck,
} from '../../kernel/contract/schema.ts';
import type { Requirement } from '../service.ts';
import type { ActionDefinition, JobDefinition, ServiceDefinition, ServiceRequirement } from './definition.ts';

/** What is wrong with a project; its message names the file and the member. */
export class ProjectError extends Error {
  override name = 'ProjectError';
}

/** A service and the file that it was found in. */
export interface LoadedService {
  definition: ServiceDefinition;
  /** As it is to be named in messages. */
  source: string;
}

export interface Action {
  id: string;
  method: 'GET' | 'POST';
  identities: ReadonlySet<string>;
  /** For POST. */
  checkInput: SchemaCheck;
  /** For GET, whose values are texts that may stand for numbers. */
  checkQuery: QueryCheck;
  checkOutput: SchemaCheck;
  run: ActionDefinition['run'];
}

export interface ProjectService {
  id: string;
  name: string;
  env: readonly Requirement[];
  actions: ReadonlyMap<string, Action>;
  jobs: ReadonlyMap<string, JobDefinition>;
}

export interface RegistryRules {
  /** The first parts of the paths that are the server's own. */
  reservedIds: ReadonlySet<string>;
  isReservedKey(key: string): boolean;
}

const serviceShape = /^[a-z][a-z0-9_-]{0,63}$/;
const actionShape = /^[A-Za-z0-9_-]{1,128}(\/[A-Za-z0-9_-]{1,128})?$/;
const jobShape = /^[A-Za-z0-9_-]{1,64}$/;
const keyShape = /^[A-Z][A-Z0-9_]{0,127}$/;
const everyone = ['guest', 'user', 'admin'];
const serviceMembers = ['id', 'name', 'env', 'actions', 'jobs'];
const actionMembers = ['method', 'identities', 'input', 'output', 'run'];
const jobMembers = ['retries', 'timeoutSeconds', 'concurrency', 'run'];
const requirementMembers = ['key', 'description', 'required', 'secret'];
// An action without a schema takes nothing, so that no member is taken that nobody looked at.
const noInput = { type: 'object', additionalProperties: false };

/** Throws a ProjectError at the first fault. */
export function registerServices(
  found: readonly LoadedService[],
  rules: RegistryRules,
): ReadonlyMap<string, ProjectService> {
  const services = new Map<string, ProjectService>();
  const places = new Map<string, string>();
  for (const { definition, source } of found) {
    const service = readService(definition, source, rules);
    const before = places.get(service.id);
    if (before !== undefined)
      throw new ProjectError(
        `${source}: service "${service.id}": id is already that of a service in ${before}.`,
      );
    places.set(service.id, source);
    services.set(service.id, service);
  }
  return services;
}

function readService(definition: ServiceDefinition, source: string, rules: RegistryRules): ProjectService {
  const { id, name, env = [], actions, jobs = {} } = definition;
  const place = typeof id === 'string' && id !== '' ? `${source}: service "${id}"` : `${source}: a service`;
  const refuse = refuser(place);
  refuseUnknown(definition, serviceMembers, refuse);
  if (typeof id !== 'string' || !serviceShape.test(id))
    refuse('id', 'must be lower-case letters, digits, `_` and `-`, 64 at most, a letter first');
  if (rules.reservedIds.has(id)) refuse('id', 'is taken by the server itself');
  if (typeof name !== 'string' || name.trim() === '') refuse('name', 'must be a text');
  if (!Array.isArray(env)) refuse('env', 'must be a list');
  if (!isRecord(actions) || Object.keys(actions).length === 0)
    refuse('actions', 'must be an object with at least one action');
  if (!isRecord(jobs)) refuse('jobs', 'must be an object');
  return {
    id,
    name,
    jobs: new Map(
      Object.entries(jobs).map(([jobName, job]) => [
        jobName,
        readJob(jobName, job as JobDefinition, refuser(place, `jobs.${jobName}`)),
      ]),
    ),
    env: env.map((requirement: ServiceRequirement, index) =>
      readRequirement(requirement, refuser(place, `env[${index}]`), rules),
    ),
    actions: new Map(
      Object.entries(actions).map(([actionId, action]) => [
        actionId,
        readAction(actionId, action, refuser(place, `actions.${actionId}`)),
      ]),
    ),
  };
}

function readRequirement(given: ServiceRequirement, refuse: Refuse, rules: RegistryRules): Requirement {
  if (!isRecord(given)) refuse('', 'must be an object with key and description');
  refuseUnknown(given, requirementMembers, refuse);
  const { key, description, required = true, secret = true } = given;
  if (typeof key !== 'string' || !keyShape.test(key))
    refuse('key', 'must be upper-case letters, digits and `_`, a letter first');
  if (rules.isReservedKey(key)) refuse('key', `${key} is read by the server itself and is not for services`);
  if (typeof description !== 'string' || description.trim() === '') refuse('description', 'must be a text');
  if (typeof required !== 'boolean') refuse('required', 'must be true or false');
  if (typeof secret !== 'boolean') refuse('secret', 'must be true or false');
  return { key, description, required, secret };
}

function readAction(id: string, given: ActionDefinition, refuse: Refuse): Action {
  if (!actionShape.test(id))
    refuse('', 'has an id that is not letters, digits, `_` and `-` with at most one `/` within');
  if (!isRecord(given)) refuse('', 'must be an object');
  refuseUnknown(given, actionMembers, refuse);
  const { method, identities = ['user'], input = noInput, output = {}, run } = given as ActionDefinition;
  if (method !== 'GET' && method !== 'POST') refuse('method', 'must be GET or POST');
  if (
    !Array.isArray(identities) ||
    identities.some((identity: unknown) => !everyone.includes(identity as string))
  ) {
    refuse('identities', `must be a list of ${everyone.join(', ')}; an empty one admits anyone`);
  }
  if (typeof run !== 'function') refuse('run', 'must be a function');
  if (!isRecord(input) || ('type' in input && input['type'] !== 'object'))
    refuse('input', 'must be the JSON Schema of an object');
  if (!isRecord(output)) refuse('output', 'must be a JSON Schema');
  return {
    id,
    method,
    identities: new Set(identities.length === 0 ? everyone : identities),
    checkInput: compiled(() => compileSchema({ type: 'object', ...input }), 'input', refuse),
    checkQuery: compiled(() => compileQuery({ type: 'object', ...input }), 'input', refuse),
    checkOutput: compiled(() => compileSchema(output), 'output', refuse),
    // Called on its own definition, which may be an object with state.
    run: (call) => run.call(given, call),
  };
}

function readJob(name: string, given: JobDefinition, refuse: Refuse): JobDefinition {
  if (!jobShape.test(name)) refuse('', 'has a name that is not letters, digits, `_` and `-`');
  if (!isRecord(given)) refuse('', 'must be an object');
  refuseUnknown(given, jobMembers, refuse);
  for (const member of ['retries', 'timeoutSeconds', 'concurrency'] as const) {
    const value = given[member];
    const least = member === 'retries' ? 0 : 1;
    if (value !== undefined && (!Number.isInteger(value) || value < least))
      refuse(member, `must be a whole number of ${least} or more`);
  }
  if (typeof given.run !== 'function') refuse('run', 'must be a function');
  return given;
}

type Refuse = (member: string, message: string) => never;

function refuser(place: string, within = ''): Refuse {
  return (member, message) => {
    const path = [within, member].filter((part) => part !== '').join('.');
    throw new ProjectError(`${place}: ${path === '' ? '' : `${path} `}${message}.`);
  };
}

function refuseUnknown(given: object, known: readonly string[], refuse: Refuse): void {
  const unknown = Object.keys(given).find((name) => !known.includes(name));
  if (unknown !== undefined) refuse(unknown, `is not known here; there are ${known.join(', ')}`);
}

function compiled<T>(compile: () => T, member: string, refuse: Refuse): T {
  try {
    return compile();
  } catch (error) {
    return refuse(
      member,
      `is no JSON Schema that can be used: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
