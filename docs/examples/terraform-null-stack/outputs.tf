output "ids" {
  description = "The identifier of each component."
  value       = { for component, label in module.label : component => label.id }
}

output "tags" {
  description = "The tags of each component."
  value       = { for component, label in module.label : component => label.tags }
}

output "bucket_name" {
  description = "A name for a bucket that nobody else is likely to have taken."
  value       = "${var.namespace}-${var.stage}-${var.name}-${module.bucket_suffix.value}"
}
