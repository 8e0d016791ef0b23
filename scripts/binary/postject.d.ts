// The one function of it that we use; the package brings no types.
declare module 'postject' {
  export function inject(file: string, resource: string, data: Buffer, options: { sentinelFuse: string }): Promise<void>;
}
