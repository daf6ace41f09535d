static int v[600];
static void sort(int*a,int n){ if(n<2) return; int p=a[n/2],i=0,j=n-1; for(;;){ while(a[i]<p)i++; while(a[j]>p)j--; if(i>=j)break; int t=a[i];a[i]=a[j];a[j]=t;i++;j--; } sort(a,i); sort(a+i,n-i);} 
int main(void){ unsigned x=1; for(int i=0;i<600;i++){x=x*1664525u+1013904223u;v[i]=x>>16;} sort(v,600); return v[3]&1; }
