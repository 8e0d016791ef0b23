// Serializes Bureaus for answers.
import type { Bureau as BureauBody, BureauSummary } from '../../contract/gateway/types.gen.ts';
import type { Bureau } from './store.ts';

/** The members that users of the Bureau may see. */
export function summarizeBureau({ bureauId, name, state, serverUrl }: Bureau): BureauSummary {
  return { bureau_id: bureauId, name, state, server_url: serverUrl };
}

export function serializeBureau(bureau: Bureau): BureauBody {
  return {
    ...summarizeBureau(bureau),
    redirect_origins: bureau.redirectOrigins,
    redirect_uris: bureau.redirectUris,
    color: bureau.color,
    models: bureau.models,
    limits: bureau.limits,
    starting_credits: bureau.startingCredits === null ? null : Number(bureau.startingCredits),
    metadata: bureau.metadata,
    created_at: bureau.createdAt.toISOString(),
    updated_at: bureau.updatedAt.toISOString(),
    archived_at: bureau.archivedAt?.toISOString() ?? null,
  };
}
