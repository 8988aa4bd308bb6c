output "id" {
  description = "The identifier: namespace, stage, name and attributes, joined by hyphens."
  value       = local.id
}

output "tags" {
  description = "Tags for whatever carries the identifier."
  value       = merge({ for key, value in local.generated_tags : key => value if value != null }, var.tags)
}
