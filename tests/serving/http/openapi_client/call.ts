import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Row = components["schemas"]["profiles_Row"];

const client = createClient<paths>({ baseUrl: process.argv[2] });

const found = await client.GET("/v1/tables/profiles/rows", { params: { query: { app_id: 7, user_id: "u1" } } });
const rows: Row[] = found.data?.rows ?? [];
const values: (string | null)[] = rows.map((row) => row.value);

const missing = await client.GET("/v1/tables/profiles/rows", {
  params: { query: { app_id: 7, user_id: "u1", key: "none" } },
});
const code: string | undefined = missing.error?.code;

const several = await client.POST("/v1/tables/profiles/rows:batch", {
  body: { entities: [{ app_id: 7, user_id: "u1" }, { app_id: 7, user_id: "nobody" }] },
});
const counts: number[] = (several.data?.results ?? []).map((one) => one.rows.length);

const lines = await client.POST("/v1/tables/profiles/extract", {
  body: { columns: ["key"], where: "user_id = 'u1'" },
  headers: { Accept: "application/x-ndjson" },
  parseAs: "text",
});
const tables = await client.GET("/v1/tables");
const extracted: number = (lines.data ?? "").trim().split("\n").length;
console.log(JSON.stringify([values, code, counts, extracted, tables.data?.tables]));
