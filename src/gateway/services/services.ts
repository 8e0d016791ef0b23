// Calls actions of the project's services. Identities and input are checked against the
// action's definition; errors of an action go to the log, and the caller gets no details.
import { Problem, type ProblemDetail } from '../../kernel/problem.ts';
import type { Requirement, Service } from '../service.ts';
import type { Action, ProjectService } from './registry.ts';
import { runAction, type ActionRequest, type RunOptions } from './run-action.ts';

interface ServicesOptions extends RunOptions {
  projectServices: ReadonlyMap<string, ProjectService>;
}

export interface Services extends Service<'services'> {
  /** The project's services, for the directory. */
  listed: readonly { name: string; title: string; env: readonly Requirement[] }[];
}

export function services({ projectServices, ...runOptions }: ServicesOptions): Services {
  async function call(method: 'GET' | 'POST', input: unknown): Promise<{ status: 200; body: unknown }> {
    const request = input as ActionRequest;
    const { service, action } = findAction(projectServices, request.path);
    if (action.method !== method) throw wrongMethod(action);
    requireIdentity(action, request);
    const body = await runAction({ service, action, request, input: readInput(action, request) }, runOptions);
    return { status: 200, body };
  }

  return {
    name: 'services',
    title: 'Services',
    env: [],
    listed: [...projectServices.values()].map(({ id, name, env: declared }) => ({
      name: id,
      title: name,
      env: declared,
    })),
    handlers: {
      'services.callAction': (request) => call('POST', request),
      'services.callStep': (request) => call('POST', request),
      'services.callReadingAction': (request) => call('GET', request),
      'services.callReadingStep': (request) => call('GET', request),
    },
  };
}

function findAction(
  projectServices: ReadonlyMap<string, ProjectService>,
  path: ActionRequest['path'],
): { service: ProjectService; action: Action } {
  const service = projectServices.get(path.service);
  // The same answer as the router's for a path that does not exist.
  if (service === undefined)
    throw new Problem('not_found', 'route_not_found', 'There is nothing at this path.');
  const id = 'step' in path ? `${path.action}/${path.step}` : path.action;
  const action = service.actions.get(id);
  if (action === undefined)
    throw new Problem(
      'not_found',
      'service_action_not_found',
      `The service ${service.id} has no such action.`,
    );
  return { service, action };
}

function requireIdentity(action: Action, { identity, operationId }: ActionRequest): void {
  // A machine credential is limited to the operations of its scopes.
  const isLimited = identity.kind === 'admin' && identity.operations?.has(operationId) === false;
  if (action.identities.has(identity.kind) && !isLimited) return;
  if (identity.kind !== 'guest')
    throw new Problem(
      'forbidden',
      'forbidden_for_identity',
      'This action does not accept this kind of credential.',
    );
  throw new Problem('unauthenticated', 'authentication_required', 'This action needs a credential.', {
    headers: { 'www-authenticate': 'Bearer' },
  });
}

function wrongMethod(action: Action): Problem {
  const allow = action.method === 'GET' ? 'GET, HEAD, OPTIONS' : 'POST, OPTIONS';
  return new Problem('method_not_allowed', 'method_not_allowed', `This path answers ${allow}.`, {
    headers: { allow },
  });
}

function readInput(action: Action, { body, query }: ActionRequest): Record<string, unknown> {
  if (action.method === 'GET') {
    const verdict = action.checkQuery(query as Record<string, unknown>);
    if (!verdict.ok) throw invalidInput(verdict.details);
    return verdict.value;
  }
  const input = (body as Record<string, unknown> | undefined) ?? {};
  const verdict = action.checkInput(input);
  if (!verdict.ok) throw invalidInput(verdict.details);
  return input;
}

function invalidInput(details: ProblemDetail[]): Problem {
  const [firstDetail] = details;
  const reason = firstDetail === undefined ? '' : `: \`${firstDetail.path}\` ${firstDetail.message}`;
  const message = `The input does not match the schema of the action${reason}.`;
  return new Problem('bad_request', 'service_invalid_input', message, {
    param: firstDetail?.path || null,
    details,
  });
}
