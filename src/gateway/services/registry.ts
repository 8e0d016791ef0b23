// Validates the project's services before the server starts. Errors name the file
// and the member, so mistakes appear at startup and not in answers to callers.
import {
  compileQuery,
  compileSchema,
  type QueryCheck,
  type SchemaCheck,
} from '../../kernel/contract/schema.ts';
import { errorText } from '../../kernel/error-text.ts';
import { isRecord } from '../../kernel/json-value.ts';
import type { Requirement } from '../service.ts';
import type { ActionDefinition, JobDefinition, ServiceDefinition, ServiceRequirement } from './definition.ts';

/** A mistake in a project. The message names the file and the member. */
export class ProjectError extends Error {
  override name = 'ProjectError';
}

/** A service and the file that exports it. */
export interface LoadedService {
  definition: ServiceDefinition;
  /** The file, for error messages. */
  source: string;
}

export interface Action {
  id: string;
  method: 'GET' | 'POST';
  identities: ReadonlySet<string>;
  /** Checks the input of a POST. */
  checkInput: SchemaCheck;
  /** Checks the input of a GET, whose values are strings, and converts them to the schema's types. */
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
  /** The first segments after `/v1/` of the server's own paths. */
  reservedIds: ReadonlySet<string>;
  isReservedKey(key: string): boolean;
}

const idPattern = /^[a-z][a-z0-9_-]{0,63}$/;
const actionPattern = /^[A-Za-z0-9_-]{1,128}(\/[A-Za-z0-9_-]{1,128})?$/;
const jobPattern = /^[A-Za-z0-9_-]{1,64}$/;
const keyPattern = /^[A-Z][A-Z0-9_]{0,127}$/;
const identityKinds = ['guest', 'user', 'admin'];
const serviceMembers = ['id', 'name', 'env', 'actions', 'jobs'];
const actionMembers = ['method', 'identities', 'input', 'output', 'run'];
const jobMembers = ['retries', 'timeoutSeconds', 'concurrency', 'run'];
const requirementMembers = ['key', 'description', 'required', 'secret'];
// An action without a schema accepts no members, so unvalidated input never reaches it.
const noInput = { type: 'object', additionalProperties: false };

/** Throws a ProjectError at the first mistake. */
export function registerServices(
  loadedServices: readonly LoadedService[],
  rules: RegistryRules,
): ReadonlyMap<string, ProjectService> {
  const services = new Map<string, ProjectService>();
  const sources = new Map<string, string>();
  for (const { definition, source } of loadedServices) {
    const service = readService(definition, source, rules);
    const otherSource = sources.get(service.id);
    if (otherSource !== undefined)
      throw new ProjectError(
        `${source}: service "${service.id}": id is already used by a service in ${otherSource}.`,
      );
    sources.set(service.id, source);
    services.set(service.id, service);
  }
  return services;
}

function readService(definition: ServiceDefinition, source: string, rules: RegistryRules): ProjectService {
  const { id, name, env = [], actions, jobs = {} } = definition;
  const label = typeof id === 'string' && id !== '' ? `${source}: service "${id}"` : `${source}: a service`;
  const refuse = createRefuse(label);
  refuseUnknown(definition, serviceMembers, refuse);
  if (typeof id !== 'string' || !idPattern.test(id))
    refuse('id', 'must start with a letter and have at most 64 lower-case letters, digits, `_` and `-`');
  if (rules.reservedIds.has(id)) refuse('id', 'is reserved by the server; choose another one');
  if (typeof name !== 'string' || name.trim() === '') refuse('name', 'must be a string that is not empty');
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
        readJob(jobName, job as JobDefinition, createRefuse(label, `jobs.${jobName}`)),
      ]),
    ),
    env: env.map((requirement: ServiceRequirement, index) =>
      readRequirement(requirement, createRefuse(label, `env[${index}]`), rules),
    ),
    actions: new Map(
      Object.entries(actions).map(([actionId, action]) => [
        actionId,
        readAction(actionId, action, createRefuse(label, `actions.${actionId}`)),
      ]),
    ),
  };
}

function readRequirement(requirement: ServiceRequirement, refuse: Refuse, rules: RegistryRules): Requirement {
  if (!isRecord(requirement)) refuse('', 'must be an object with key and description');
  refuseUnknown(requirement, requirementMembers, refuse);
  const { key, description, required = true, secret = true } = requirement;
  if (typeof key !== 'string' || !keyPattern.test(key))
    refuse('key', 'must start with a letter and have only upper-case letters, digits and `_`');
  if (rules.isReservedKey(key))
    refuse('key', `${key} is a setting of the server; services cannot declare it`);
  if (typeof description !== 'string' || description.trim() === '')
    refuse('description', 'must be a string that is not empty');
  if (typeof required !== 'boolean') refuse('required', 'must be true or false');
  if (typeof secret !== 'boolean') refuse('secret', 'must be true or false');
  return { key, description, required, secret };
}

function readAction(id: string, action: ActionDefinition, refuse: Refuse): Action {
  if (!actionPattern.test(id))
    refuse('', 'has an invalid id; use letters, digits, `_` and `-`, in one part or two parts joined by `/`');
  if (!isRecord(action)) refuse('', 'must be an object');
  refuseUnknown(action, actionMembers, refuse);
  const { method, identities = ['user'], input = noInput, output = {}, run } = action as ActionDefinition;
  if (method !== 'GET' && method !== 'POST') refuse('method', 'must be GET or POST');
  if (
    !Array.isArray(identities) ||
    identities.some((identity: unknown) => !identityKinds.includes(identity as string))
  ) {
    refuse('identities', `must be a list of ${identityKinds.join(', ')}; an empty list admits anyone`);
  }
  if (typeof run !== 'function') refuse('run', 'must be a function');
  if (!isRecord(input) || ('type' in input && input['type'] !== 'object'))
    refuse('input', 'must be the JSON Schema of an object');
  if (!isRecord(output)) refuse('output', 'must be a JSON Schema');
  return {
    id,
    method,
    identities: new Set(identities.length === 0 ? identityKinds : identities),
    checkInput: compileOrRefuse(() => compileSchema({ type: 'object', ...input }), 'input', refuse),
    checkQuery: compileOrRefuse(() => compileQuery({ type: 'object', ...input }), 'input', refuse),
    checkOutput: compileOrRefuse(() => compileSchema(output), 'output', refuse),
    // Keep the action as `this`: the definition may be an object with state.
    run: (call) => run.call(action, call),
  };
}

function readJob(name: string, job: JobDefinition, refuse: Refuse): JobDefinition {
  if (!jobPattern.test(name)) refuse('', 'has an invalid name; use at most 64 letters, digits, `_` and `-`');
  if (!isRecord(job)) refuse('', 'must be an object');
  refuseUnknown(job, jobMembers, refuse);
  for (const member of ['retries', 'timeoutSeconds', 'concurrency'] as const) {
    const value = job[member];
    const minimum = member === 'retries' ? 0 : 1;
    if (value !== undefined && (!Number.isInteger(value) || value < minimum))
      refuse(member, `must be a whole number of ${minimum} or more`);
  }
  if (typeof job.run !== 'function') refuse('run', 'must be a function');
  return job;
}

/** Throws a ProjectError about a member of the definition. */
type Refuse = (member: string, message: string) => never;

/** `label` names the file and the service; `parent` is the path of the members, such as `actions.order`. */
function createRefuse(label: string, parent = ''): Refuse {
  return (member, message) => {
    const path = [parent, member].filter((part) => part !== '').join('.');
    throw new ProjectError(`${label}: ${path === '' ? '' : `${path} `}${message}.`);
  };
}

function refuseUnknown(definition: object, allowedNames: readonly string[], refuse: Refuse): void {
  const unknownName = Object.keys(definition).find((name) => !allowedNames.includes(name));
  if (unknownName !== undefined) refuse(unknownName, `is not known here; use ${allowedNames.join(', ')}`);
}

function compileOrRefuse<T>(compile: () => T, member: string, refuse: Refuse): T {
  try {
    return compile();
  } catch (error) {
    return refuse(member, `is not a usable JSON Schema: ${errorText(error)}`);
  }
}
