// The addresses of Google's Vertex AI: a host by location, and paths with the project.
import type { ProviderAddress, SdkModelEntry } from '../adapter/provider-adapter.ts';

export const vertexAddress: ProviderAddress = {
  members: ['project', 'location'],
  baseUrl: ({ location }) => `https://${hostOf(location)}`,
};

function hostOf(location: string): string {
  if (location === 'global') return 'aiplatform.googleapis.com';
  if (location === 'eu' || location === 'us') return `aiplatform.${location}.rep.googleapis.com`;
  return `${location}-aiplatform.googleapis.com`;
}

/** The URL of a publisher's models, in the form that Google's and Anthropic's packages for Vertex expect. */
export function publisherUrl(
  { providerEntry: { project, location } }: SdkModelEntry,
  { baseURL, version, publisher }: { baseURL: string; version: string; publisher: string },
): string {
  return `${baseURL}/${version}/projects/${project}/locations/${location}/publishers/${publisher}`;
}
