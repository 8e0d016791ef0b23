// The settings of a Bureau in request bodies, and their differences for the audit log.
import { isDeepStrictEqual } from 'node:util';
import { requireStorable } from '../../kernel/contract/storable.ts';
import { requireOrigins, requireRedirectUris } from './server-url.ts';
import type { Bureau, BureauSettings } from './store.ts';

export interface SettingsBody {
  name?: string;
  redirect_origins?: string[];
  redirect_uris?: string[];
  color?: string | null;
  models?: string[] | null;
  limits?: { requests_per_minute?: number } | null;
  starting_credits?: number | null;
  metadata?: Record<string, unknown>;
}

/**
 * The settings that the body contains. Throws 400 for an invalid origin and for text
 * that the database cannot store.
 */
export function readSettings(body: SettingsBody): Partial<BureauSettings> {
  if (body.metadata !== undefined) requireStorable(body.metadata, 'metadata');
  for (const [index, model] of (body.models ?? []).entries()) requireStorable(model, `models[${index}]`);
  return {
    ...(body.name === undefined ? {} : { name: body.name }),
    ...(body.redirect_origins === undefined
      ? {}
      : { redirectOrigins: requireOrigins(body.redirect_origins) }),
    ...(body.redirect_uris === undefined ? {} : { redirectUris: requireRedirectUris(body.redirect_uris) }),
    ...(body.color === undefined ? {} : { color: body.color?.toLowerCase() ?? null }),
    ...(body.models === undefined ? {} : { models: body.models }),
    ...(body.limits === undefined ? {} : { limits: body.limits }),
    ...(body.starting_credits === undefined
      ? {}
      : { startingCredits: body.starting_credits === null ? null : BigInt(body.starting_credits) }),
    ...(body.metadata === undefined ? {} : { metadata: body.metadata }),
  };
}

const contractNames: Record<keyof BureauSettings, string> = {
  name: 'name',
  serverUrl: 'server_url',
  redirectOrigins: 'redirect_origins',
  redirectUris: 'redirect_uris',
  color: 'color',
  models: 'models',
  limits: 'limits',
  startingCredits: 'starting_credits',
  metadata: 'metadata',
};

/** The old and new values of the settings that differ, by the contract's member names. */
export function diffSettings(before: Bureau, settings: Partial<BureauSettings>): Record<string, unknown> {
  const toJson = (value: unknown) => (typeof value === 'bigint' ? Number(value) : value);
  return Object.fromEntries(
    (Object.keys(settings) as (keyof BureauSettings)[])
      .filter((name) => !isDeepStrictEqual(before[name], settings[name]))
      .map((name) => [contractNames[name], { from: toJson(before[name]), to: toJson(settings[name]) }]),
  );
}
